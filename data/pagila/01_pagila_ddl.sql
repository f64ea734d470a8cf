-- Pagila: eleven tables of a film rental, with types, defaults, keys and references as the public pagila-schema.sql has
-- them. Its rows are generated, or come from the public pagila-data.sql. No schema is named here: the loader sets
-- search_path.
--
-- What the public file has and is not here:
-- * rental, payment, staff and store (with the references to store), views, and the functions that go with them. One of
--   the views and one setting need PostgreSQL 17: by itself, the file gives three errors on a server before that;
-- * REPLICA IDENTITY NOTHING of country: published, it would refuse every update;
-- * the names and the further columns (INCLUDE) of primary keys, and all but two of the indexes;
-- * the trigger last_updated: update_last_update_column is the walkthroughs' own, with the same effect.

-- what an earlier load has left: unloading removes tables
DROP FUNCTION IF EXISTS update_last_update_column();
DROP DOMAIN IF EXISTS year;
DROP TYPE IF EXISTS mpaa_rating;

CREATE TYPE mpaa_rating AS ENUM ('G', 'PG', 'PG-13', 'R', 'NC-17');

CREATE DOMAIN year AS integer CONSTRAINT year_check CHECK (VALUE >= 1901 AND VALUE <= 2155);

CREATE TABLE language (
    language_id serial PRIMARY KEY,
    name character(20) NOT NULL,
    last_update timestamp NOT NULL DEFAULT now()
);

CREATE TABLE category (
    category_id serial PRIMARY KEY,
    name varchar(25) NOT NULL,
    last_update timestamp NOT NULL DEFAULT now()
);

CREATE TABLE actor (
    actor_id serial PRIMARY KEY,
    first_name varchar(45) NOT NULL,
    last_name varchar(45) NOT NULL,
    last_update timestamp NOT NULL DEFAULT now()
);

CREATE TABLE country (
    country_id serial PRIMARY KEY,
    country varchar(50) NOT NULL,
    last_update timestamp NOT NULL DEFAULT now()
);

CREATE TABLE city (
    city_id serial PRIMARY KEY,
    city varchar(50) NOT NULL,
    country_id smallint NOT NULL REFERENCES country ON UPDATE CASCADE ON DELETE RESTRICT,
    last_update timestamp NOT NULL DEFAULT now()
);

CREATE TABLE address (
    address_id serial PRIMARY KEY,
    address varchar(50) NOT NULL,
    address2 varchar(50),
    district varchar(20) NOT NULL,
    city_id smallint NOT NULL REFERENCES city ON UPDATE CASCADE ON DELETE RESTRICT,
    postal_code varchar(10),
    phone varchar(20) NOT NULL,
    last_update timestamp NOT NULL DEFAULT now()
);

CREATE TABLE customer (
    customer_id serial PRIMARY KEY,
    store_id smallint NOT NULL,
    first_name varchar(45) NOT NULL,
    last_name varchar(45) NOT NULL,
    email varchar(50),
    address_id smallint NOT NULL REFERENCES address ON UPDATE CASCADE ON DELETE RESTRICT,
    activebool boolean NOT NULL DEFAULT true,
    create_date date NOT NULL DEFAULT current_date,
    last_update timestamp DEFAULT now(),
    active smallint GENERATED ALWAYS AS (CASE WHEN activebool IS TRUE THEN 1 ELSE 0 END) STORED
);

CREATE TABLE film (
    film_id serial PRIMARY KEY,
    title varchar(255) NOT NULL,
    description text,
    release_year year,
    language_id smallint NOT NULL REFERENCES language ON UPDATE CASCADE ON DELETE RESTRICT,
    original_language_id smallint REFERENCES language ON UPDATE CASCADE ON DELETE RESTRICT,
    rental_duration smallint NOT NULL DEFAULT 3,
    rental_rate numeric(4, 2) NOT NULL DEFAULT 4.99,
    length smallint,
    replacement_cost numeric(5, 2) NOT NULL DEFAULT 19.99,
    rating mpaa_rating DEFAULT 'G',
    last_update timestamp NOT NULL DEFAULT now(),
    special_features text[],
    fulltext tsvector NOT NULL,
    revenue_projection numeric(5, 2) GENERATED ALWAYS AS (rental_duration * rental_rate) STORED
);

CREATE TABLE film_actor (
    actor_id smallint NOT NULL REFERENCES actor ON UPDATE CASCADE ON DELETE RESTRICT,
    film_id smallint NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE RESTRICT,
    last_update timestamp NOT NULL DEFAULT now(),
    PRIMARY KEY (actor_id, film_id)
);

CREATE TABLE film_category (
    film_id smallint NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE RESTRICT,
    category_id smallint NOT NULL REFERENCES category ON UPDATE CASCADE ON DELETE RESTRICT,
    last_update timestamp NOT NULL DEFAULT now(),
    PRIMARY KEY (film_id, category_id)
);

CREATE TABLE inventory (
    inventory_id serial PRIMARY KEY,
    film_id smallint NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE RESTRICT,
    store_id smallint NOT NULL,
    last_update timestamp NOT NULL DEFAULT now()
);

-- for the references whose other side is changed and deleted here
CREATE INDEX idx_fk_film_id ON film_actor (film_id);
CREATE INDEX idx_fk_address_id ON customer (address_id);

CREATE TRIGGER film_fulltext_trigger BEFORE INSERT OR UPDATE ON film FOR EACH ROW
    EXECUTE FUNCTION tsvector_update_trigger('fulltext', 'pg_catalog.english', 'title', 'description');

-- Each update of a row moves its last_update, to the time at which the transaction began; an insert has it by default.
CREATE FUNCTION update_last_update_column() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.last_update := now();
    RETURN NEW;
END $$;

CREATE TRIGGER update_last_update_column_actor BEFORE UPDATE ON actor FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_address BEFORE UPDATE ON address FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_category BEFORE UPDATE ON category FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_city BEFORE UPDATE ON city FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_country BEFORE UPDATE ON country FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_customer BEFORE UPDATE ON customer FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_film BEFORE UPDATE ON film FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_film_actor BEFORE UPDATE ON film_actor FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_film_category BEFORE UPDATE ON film_category FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_inventory BEFORE UPDATE ON inventory FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
CREATE TRIGGER update_last_update_column_language BEFORE UPDATE ON language FOR EACH ROW
    EXECUTE FUNCTION update_last_update_column();
