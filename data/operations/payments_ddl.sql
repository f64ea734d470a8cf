-- The payments of the track on operations. REPLICA IDENTITY FULL: a delete has all values of the row, which notebook 86 compares.
CREATE TABLE payments (
    id bigint PRIMARY KEY,
    account integer NOT NULL,
    region text NOT NULL,
    amount numeric(12, 2) NOT NULL,
    status text NOT NULL,
    note text,
    paid_at timestamptz NOT NULL
);
ALTER TABLE payments REPLICA IDENTITY FULL;
-- signals to the connector, such as the start of an incremental snapshot
CREATE TABLE debezium_signal (id text PRIMARY KEY, type text NOT NULL, data text);
-- joins the running capture later
CREATE TABLE refunds (id bigint PRIMARY KEY, amount numeric(12, 2) NOT NULL);
-- a row that a connector updates from time to time, so that it has something to confirm
CREATE TABLE heartbeat (id integer PRIMARY KEY, at timestamptz NOT NULL);
INSERT INTO heartbeat VALUES (1, now());
