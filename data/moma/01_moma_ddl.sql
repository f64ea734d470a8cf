-- The museum: artists and artworks, as the Museum of Modern Art publishes its collection. No schema is named here: the
-- loader sets search_path.
--
-- The replica identity stays the default one: a delete brings its key and nothing else (S5). There is no foreign key: the
-- walkthrough deletes artists whose artworks stay, and not every published artwork names an artist.

CREATE TABLE artists (
    artist_id integer PRIMARY KEY,
    name text,
    nationality text,
    gender text,
    birth_year integer,
    death_year integer
);

CREATE TABLE artworks (
    artwork_id integer PRIMARY KEY,
    artist_id integer,          -- the first one, where a work has several
    title text,
    name text,                  -- of all its artists, separated by commas, as published
    date text,                  -- free text: 1959, c. 1917, 1976-77, n.d.
    dimensions text,            -- free text
    acquisition_date date,
    classification text,
    department text,
    height_cm numeric(10, 4),   -- published as "Height (cm)"; S5 does not have it: here for its logical type, decimal
    -- Invented, for its logical type, timestamp: what is published is a yes or no, "Cataloged". NULL for published rows.
    cataloged_at timestamp
);

-- Types of columns of the published files (see files.yaml). PostgreSQL's error of a value has the name of its constraint.
CREATE DOMAIN pg_temp.artist_keys AS text  -- the numbers of all artists of a work
    CONSTRAINT "a number, or several with commas" CHECK (split_part(VALUE, ',', 1)::integer > 0);
CREATE DOMAIN pg_temp.iso_date AS text
    CONSTRAINT "a date such as 2009-04-15" CHECK (VALUE ~ '^\d{4}-\d\d-\d\d$' AND isfinite(VALUE::date));
CREATE DOMAIN pg_temp.height AS numeric(10, 4)
    CONSTRAINT "a number below 1,000,000" CHECK (VALUE < 1000000);  -- NaN is greater
