-- Run after the public dump instead of 02_northwind_keys.sql, so that both variants are alike from here on:
-- room for large order numbers, and without order 11075, which the walkthrough inserts later.

ALTER TABLE order_details ALTER COLUMN order_id TYPE integer;
ALTER TABLE orders ALTER COLUMN order_id TYPE integer;
DELETE FROM order_details WHERE order_id = 11075;
DELETE FROM orders WHERE order_id = 11075;
