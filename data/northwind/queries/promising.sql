-- The customers that notebook 15 calls promising, best first: outside the three with most revenue, an average order line
-- that brings more than that of the lowest of the three
WITH customers AS (
  SELECT customer_id, sum(revenue) AS total, avg(revenue) AS average
    FROM (SELECT customer_id, round(unit_price::numeric, 2) * quantity * (1 - round(discount::numeric, 2)) AS revenue
            FROM orders JOIN order_details USING (order_id)) AS lines GROUP BY customer_id),
big AS (SELECT * FROM customers ORDER BY total DESC LIMIT 3)
SELECT customer_id FROM customers
 WHERE average > (SELECT min(average) FROM big) AND customer_id NOT IN (SELECT customer_id FROM big)
 ORDER BY average DESC
