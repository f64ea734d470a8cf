-- A service's store. Each collection is a table like `documents`, which itself stays empty.
CREATE TABLE IF NOT EXISTS documents (id text PRIMARY KEY, version int NOT NULL, document jsonb NOT NULL);

-- Published events, one row each, in the columns that Debezium's event router expects.
CREATE TABLE IF NOT EXISTS outbox (
    id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, version int NOT NULL, payload jsonb NOT NULL);

-- Consumed events in this order. A duplicate is recognized by its id.
CREATE TABLE IF NOT EXISTS inbox (
    id uuid PRIMARY KEY, topic text NOT NULL, key text NOT NULL, version int NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY);
