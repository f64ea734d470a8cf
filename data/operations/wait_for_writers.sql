-- PostgreSQL writes a commit into its log first, and shows it to queries a moment later. Debezium inserts a row (the first
-- watermark), then it reads the chunk. A transaction releases its locks after queries see its changes. So with this trigger
-- the chunk contains every change that precedes the watermark in the log. SECURITY DEFINER: the connector's user may not lock
-- payments.
CREATE OR REPLACE FUNCTION wait_for_writers() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE public.payments IN SHARE MODE;
    RETURN NEW;
END $$;
REVOKE EXECUTE ON FUNCTION wait_for_writers() FROM PUBLIC;
CREATE OR REPLACE TRIGGER wait_for_writers BEFORE INSERT ON debezium_signal FOR EACH ROW
WHEN (NEW.type = 'snapshot-window-open') EXECUTE FUNCTION wait_for_writers();
