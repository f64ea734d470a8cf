-- A service's store. Each collection is a table like `documents`, which itself stays empty.
CREATE TABLE IF NOT EXISTS documents (id text PRIMARY KEY, version int NOT NULL, document jsonb NOT NULL);

-- What the service has said, a row for each event, in the columns that Debezium's event router looks for.
CREATE TABLE IF NOT EXISTS outbox (
    id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, version int NOT NULL, payload jsonb NOT NULL);

-- What it has heard, in this order: an event that comes again is known by its id.
CREATE TABLE IF NOT EXISTS inbox (
    id uuid PRIMARY KEY, topic text NOT NULL, key text NOT NULL, version int NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY);
