-- The connector leaves out a column that PostgreSQL generates, for such a one is not in its log, and that of the
-- full-text search.
SELECT film_id, title, description, release_year, language_id, original_language_id, rental_duration,
       rental_rate, length, replacement_cost, rating, last_update, special_features FROM film
