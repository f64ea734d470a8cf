BEGIN;
UPDATE orders SET shipped_date = '1998-06-15'::date WHERE order_id = 11077;
COMMIT;
