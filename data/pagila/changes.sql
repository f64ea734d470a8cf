-- The kinds of changes of pagila.changes. Each statement changes one row, or none where there is none that it may
-- change.
--
-- %(row)s says which: the last one up to a number that it gives. So new rows, which are the last ones, are met often;
-- the same number again meets the same row. %(n)s is another number below a million, %(text)s a text. Of the rows that
-- were loaded, those that a walkthrough names are left alone, and all that other rows refer to stay.

INSERT INTO country (country) VALUES (%(text)s);
UPDATE country SET country = %(text)s
 WHERE country_id = (SELECT max(country_id) FROM country WHERE country_id BETWEEN 111 AND 111 + mod(%(row)s, 600));
DELETE FROM country
 WHERE country_id = (SELECT max(country_id) FROM country WHERE country_id BETWEEN 111 AND 111 + mod(%(row)s, 600)
                     AND NOT EXISTS (SELECT FROM city WHERE city.country_id = country.country_id));

INSERT INTO city (city, country_id)
SELECT %(text)s, max(country_id) FROM country WHERE country_id <= 1 + mod(%(row)s, 300);
UPDATE city SET city = %(text)s
 WHERE city_id = (SELECT max(city_id) FROM city WHERE city_id BETWEEN 602 AND 602 + mod(%(row)s, 600));
UPDATE city SET country_id = (SELECT max(country_id) FROM country WHERE country_id <= 1 + mod(%(n)s, 300))
 WHERE city_id = (SELECT max(city_id) FROM city WHERE city_id BETWEEN 602 AND 602 + mod(%(row)s, 600));
DELETE FROM city
 WHERE city_id = (SELECT max(city_id) FROM city WHERE city_id BETWEEN 602 AND 602 + mod(%(row)s, 600)
                  AND NOT EXISTS (SELECT FROM address WHERE address.city_id = city.city_id));

INSERT INTO address (address, district, city_id, phone)
SELECT %(text)s, 'Old Town', max(city_id), %(n)s FROM city WHERE city_id <= 1 + mod(%(row)s, 900);
-- a number that was deleted, or left out, comes again
INSERT INTO address (address_id, address, address2, district, city_id, phone)
SELECT min(n), %(text)s, '', 'West End', 1 + mod(%(n)s, 600), '' FROM generate_series(606, 1600) n
 WHERE n <= (SELECT max(address_id) FROM address) AND NOT EXISTS (SELECT FROM address WHERE address_id = n)
HAVING count(*) > 0;
UPDATE address SET address = %(text)s, postal_code = nullif(mod(%(n)s, 7), 0)
 WHERE address_id = (SELECT max(address_id) FROM address WHERE address_id BETWEEN 301 AND 301 + mod(%(row)s, 600));
UPDATE address SET address2 = %(text)s
 WHERE address_id = (SELECT max(address_id) FROM address WHERE address_id BETWEEN 301 AND 301 + mod(%(row)s, 600));
UPDATE address SET city_id = (SELECT max(city_id) FROM city WHERE city_id <= 1 + mod(%(n)s, 900))
 WHERE address_id = (SELECT max(address_id) FROM address WHERE address_id BETWEEN 601 AND 601 + mod(%(row)s, 600));
DELETE FROM address
 WHERE address_id = (SELECT max(address_id) FROM address WHERE address_id BETWEEN 606 AND 606 + mod(%(row)s, 300));

INSERT INTO language (name) VALUES (left(%(text)s, 20));
UPDATE language SET name = left(%(text)s, 20)
 WHERE language_id = (SELECT max(language_id) FROM language WHERE language_id BETWEEN 7 AND 7 + mod(%(row)s, 300));
DELETE FROM language
 WHERE language_id = (SELECT max(language_id) FROM language WHERE language_id BETWEEN 7 AND 7 + mod(%(row)s, 300)
                      AND NOT EXISTS (SELECT FROM film WHERE language.language_id IN (film.language_id,
                                                                                      original_language_id)));

INSERT INTO category (name) VALUES (%(text)s);
UPDATE category SET name = %(text)s
 WHERE category_id = (SELECT max(category_id) FROM category WHERE category_id BETWEEN 19 AND 19 + mod(%(row)s, 300));
DELETE FROM category
 WHERE category_id = (SELECT max(category_id) FROM category WHERE category_id BETWEEN 19 AND 19 + mod(%(row)s, 300)
                      AND NOT EXISTS (SELECT FROM film_category c WHERE c.category_id = category.category_id));

INSERT INTO actor (first_name, last_name) VALUES (%(text)s, %(text)s);
UPDATE actor SET last_name = %(text)s
 WHERE actor_id = (SELECT max(actor_id) FROM actor WHERE actor_id BETWEEN 101 AND 101 + mod(%(row)s, 300));
DELETE FROM actor
 WHERE actor_id = (SELECT max(actor_id) FROM actor WHERE actor_id BETWEEN 201 AND 201 + mod(%(row)s, 300)
                   AND NOT EXISTS (SELECT FROM film_actor WHERE film_actor.actor_id = actor.actor_id));

-- what is left out has a default, or is null
INSERT INTO film (title, language_id)
SELECT %(text)s, max(language_id) FROM language WHERE language_id <= 1 + mod(%(row)s, 100);
INSERT INTO film (title, description, release_year, language_id, original_language_id, rating, special_features)
SELECT %(text)s::text, %(text)s::text, 1901 + mod(%(n)s, 255), max(language_id), max(language_id), NULL,
       ARRAY[%(text)s::text, 'with "quotes"', 'and, comma', ''] FROM language WHERE language_id <= 1 + mod(%(row)s, 100);
-- so large a text is not in its row (TOAST): a change of other columns does not bring it
UPDATE film SET description = (SELECT string_agg(md5(%(text)s::text || i), '') FROM generate_series(1, 200) i)
 WHERE film_id = (SELECT max(film_id) FROM film WHERE film_id BETWEEN 401 AND 401 + mod(%(row)s, 900));
UPDATE film SET rental_rate = mod(%(n)s, 9999) / 100.0, rental_duration = 1 + mod(%(n)s, 9)
 WHERE film_id = (SELECT max(film_id) FROM film WHERE film_id BETWEEN 401 AND 401 + mod(%(row)s, 900));
UPDATE film SET title = %(text)s, length = nullif(mod(%(n)s, 9), 0), description = nullif(description, title),
                rating = (enum_range(NULL::mpaa_rating))[1 + mod(%(n)s, 5)], special_features = '{}'
 WHERE film_id = (SELECT max(film_id) FROM film WHERE film_id BETWEEN 401 AND 401 + mod(%(row)s, 900));
DELETE FROM film
 WHERE film_id = (SELECT max(film_id) FROM film WHERE film_id BETWEEN 1001 AND 1001 + mod(%(row)s, 300)
                  AND NOT EXISTS (SELECT FROM film_actor a WHERE a.film_id = film.film_id)
                  AND NOT EXISTS (SELECT FROM film_category c WHERE c.film_id = film.film_id));

INSERT INTO film_actor (actor_id, film_id)
SELECT max(actor_id), (SELECT max(film_id) FROM film WHERE film_id BETWEEN 401 AND 401 + mod(%(n)s, 900))
  FROM actor WHERE actor_id <= 101 + mod(%(row)s, 200) ON CONFLICT DO NOTHING;
-- nothing but last_update, by the trigger
UPDATE film_actor SET film_id = film_id
 WHERE (film_id, actor_id) = (SELECT film_id, actor_id FROM film_actor
                               WHERE film_id BETWEEN 401 AND 401 + mod(%(row)s, 900) ORDER BY 1 DESC, 2 DESC LIMIT 1);
DELETE FROM film_actor
 WHERE (film_id, actor_id) = (SELECT film_id, actor_id FROM film_actor
                               WHERE film_id BETWEEN 401 AND 401 + mod(%(row)s, 900) ORDER BY 1 DESC, 2 DESC LIMIT 1);

INSERT INTO film_category (film_id, category_id)
SELECT max(film_id), (SELECT max(category_id) FROM category WHERE category_id <= 1 + mod(%(n)s, 60))
  FROM film WHERE film_id BETWEEN 401 AND 401 + mod(%(row)s, 900) ON CONFLICT DO NOTHING;
-- the row gets another key
UPDATE film_category SET category_id = 1 + mod(%(n)s, 16)
 WHERE (film_id, category_id) = (SELECT film_id, category_id FROM film_category c
                                  WHERE film_id BETWEEN 401 AND 401 + mod(%(row)s, 900) AND NOT EXISTS (
                                        SELECT FROM film_category o
                                         WHERE o.film_id = c.film_id AND o.category_id = 1 + mod(%(n)s, 16))
                                  ORDER BY 1 DESC, 2 DESC LIMIT 1);
DELETE FROM film_category
 WHERE (film_id, category_id) = (SELECT film_id, category_id FROM film_category
                                  WHERE film_id BETWEEN 401 AND 401 + mod(%(row)s, 900)
                                  ORDER BY 1 DESC, 2 DESC LIMIT 1);
