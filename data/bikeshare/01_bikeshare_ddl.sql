-- A bike-share service in an invented city: stations, bikes, riders, trips and weather. Every row is invented;
-- 02_bikeshare_rows.sql generates them. No schema is named here: the loader sets search_path.
--
-- The tables have what makes capturing an own database difficult:
-- * numeric without precision, timestamptz, time, interval, uuid, enum, array, jsonb, bytea and point;
-- * trips is partitioned by month. PostgreSQL demands that its key contains the partition column, so a trip that moves
--   to another month gets another key;
-- * weather has no key.

-- left over from an earlier load: unloading removes tables only
DROP TYPE IF EXISTS bike_state;
DROP TYPE IF EXISTS rider_plan;

CREATE TYPE bike_state AS ENUM ('in service', 'charging', 'in repair', 'retired');

CREATE TYPE rider_plan AS ENUM ('day', 'month', 'year');

CREATE TABLE stations (
    station_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL,
    location point NOT NULL, -- kilometers east and north of the central station
    docks smallint NOT NULL,
    opened date NOT NULL,
    opens_at time, -- null: open day and night
    closes_at time,
    attributes jsonb NOT NULL,
    tags text[],
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE bikes (
    bike_id serial PRIMARY KEY,
    model text NOT NULL,
    state bike_state NOT NULL,
    is_electric boolean NOT NULL,
    price numeric NOT NULL,
    battery numeric, -- percent; null: no battery
    odometer_km double precision NOT NULL,
    bought date NOT NULL,
    station_id uuid REFERENCES stations, -- null: in use or in the workshop
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE riders (
    rider_id bigserial PRIMARY KEY,
    name text NOT NULL,
    email text NOT NULL,
    plan rider_plan NOT NULL,
    renewed_every interval,
    joined_at timestamptz NOT NULL,
    birth_date date,
    photo_hash bytea, -- SHA-256; null: no photo
    balance numeric NOT NULL,
    preferences jsonb,
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE trips (
    trip_id bigserial,
    started_at timestamptz NOT NULL,
    ended_at timestamptz, -- null: under way
    duration interval,
    bike_id integer NOT NULL REFERENCES bikes,
    rider_id bigint NOT NULL REFERENCES riders,
    from_station uuid NOT NULL REFERENCES stations,
    to_station uuid REFERENCES stations,
    distance_km double precision,
    fare numeric,
    rating smallint,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (trip_id, started_at)
) PARTITION BY RANGE (started_at);

CREATE TABLE trips_2025_01 PARTITION OF trips FOR VALUES FROM ('2025-01-01 00:00+00') TO ('2025-02-01 00:00+00');
CREATE TABLE trips_2025_02 PARTITION OF trips FOR VALUES FROM ('2025-02-01 00:00+00') TO ('2025-03-01 00:00+00');
CREATE TABLE trips_2025_03 PARTITION OF trips FOR VALUES FROM ('2025-03-01 00:00+00') TO ('2025-04-01 00:00+00');
CREATE TABLE trips_2025_04 PARTITION OF trips FOR VALUES FROM ('2025-04-01 00:00+00') TO ('2025-05-01 00:00+00');
CREATE TABLE trips_2025_05 PARTITION OF trips FOR VALUES FROM ('2025-05-01 00:00+00') TO ('2025-06-01 00:00+00');
CREATE TABLE trips_2025_06 PARTITION OF trips FOR VALUES FROM ('2025-06-01 00:00+00') TO ('2025-07-01 00:00+00');
CREATE TABLE trips_2025_07 PARTITION OF trips FOR VALUES FROM ('2025-07-01 00:00+00') TO ('2025-08-01 00:00+00');
CREATE TABLE trips_2025_08 PARTITION OF trips FOR VALUES FROM ('2025-08-01 00:00+00') TO ('2025-09-01 00:00+00');
CREATE TABLE trips_2025_09 PARTITION OF trips FOR VALUES FROM ('2025-09-01 00:00+00') TO ('2025-10-01 00:00+00');
CREATE TABLE trips_2025_10 PARTITION OF trips FOR VALUES FROM ('2025-10-01 00:00+00') TO ('2025-11-01 00:00+00');
CREATE TABLE trips_2025_11 PARTITION OF trips FOR VALUES FROM ('2025-11-01 00:00+00') TO ('2025-12-01 00:00+00');
CREATE TABLE trips_2025_12 PARTITION OF trips FOR VALUES FROM ('2025-12-01 00:00+00') TO ('2026-01-01 00:00+00');
CREATE TABLE trips_later PARTITION OF trips DEFAULT;

CREATE TABLE weather (
    measured_at timestamptz NOT NULL,
    sensor text NOT NULL,
    temperature double precision NOT NULL, -- degrees Celsius
    rain_mm double precision NOT NULL, -- in the six hours before
    is_snow boolean NOT NULL
);
