-- A larger scale repeats the addresses and the films with other ids.
INSERT INTO address
SELECT address_id + 605 * n, address, address2, district, city_id, postal_code, phone, last_update
FROM address, generate_series(1, current_setting('workbench.repetitions')::integer - 1) AS n ORDER BY 1;

INSERT INTO film (film_id, title, description, release_year, language_id, original_language_id, rental_duration,
    rental_rate, length, replacement_cost, rating, special_features, last_update)
SELECT film_id + 1000 * n, title, description, release_year, language_id, original_language_id, rental_duration,
    rental_rate, length, replacement_cost, rating, special_features, last_update
FROM film, generate_series(1, current_setting('workbench.repetitions')::integer - 1) AS n ORDER BY 1;

-- The next row of each table gets the number after its last one's.
SELECT setval('language_language_id_seq', (SELECT max(language_id) FROM language));
SELECT setval('category_category_id_seq', (SELECT max(category_id) FROM category));
SELECT setval('actor_actor_id_seq', (SELECT max(actor_id) FROM actor));
SELECT setval('country_country_id_seq', (SELECT max(country_id) FROM country));
SELECT setval('city_city_id_seq', (SELECT max(city_id) FROM city));
SELECT setval('address_address_id_seq', (SELECT max(address_id) FROM address));
SELECT setval('customer_customer_id_seq', (SELECT max(customer_id) FROM customer));
SELECT setval('film_film_id_seq', (SELECT max(film_id) FROM film));
SELECT setval('inventory_inventory_id_seq', (SELECT max(inventory_id) FROM inventory));
