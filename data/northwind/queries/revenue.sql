-- Revenue by customer, an exact decimal. Price and discount are rounded to two decimals first, as the outbox has them
SELECT customer_id, sum(round(unit_price::numeric, 2) * quantity * (1 - round(discount::numeric, 2))) AS revenue
  FROM orders JOIN order_details USING (order_id) GROUP BY customer_id
