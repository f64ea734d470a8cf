-- PostgreSQL writes a commit into its log first, and shows it to queries a moment later. Debezium opens the window of a chunk
-- with a row here, then reads the chunk. A transaction holds its locks until queries see its changes, so with this trigger the
-- chunk has each change that stands before the row in the log.
CREATE OR REPLACE FUNCTION wait_for_writers() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    LOCK TABLE public.payments IN SHARE MODE;
    RETURN NEW;
END $$;
CREATE TRIGGER wait_for_writers BEFORE INSERT ON debezium_signal FOR EACH ROW
WHEN (NEW.type = 'snapshot-window-open') EXECUTE FUNCTION wait_for_writers();
