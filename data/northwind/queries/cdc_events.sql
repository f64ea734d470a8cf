-- The outbox as it travels: dates as days since 1970-01-01 (S1's INT32), JSON as parsed values
SELECT order_id, customer_id, employee_id, order_date - DATE '1970-01-01' AS order_date,
       required_date - DATE '1970-01-01' AS required_date, shipped_date - DATE '1970-01-01' AS shipped_date,
       ship_via, freight, ship_name, ship_address, ship_city, ship_region, ship_postal_code, ship_country,
       order_items, products
  FROM datalake.cdc_events
