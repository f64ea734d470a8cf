-- A larger scale repeats the orders with higher ids.
INSERT INTO orders
SELECT order_id + 830 * n, customer_id, employee_id, order_date, required_date, shipped_date, ship_via, freight, ship_name,
    ship_address, ship_city, ship_region, ship_postal_code, ship_country
FROM orders, generate_series(1, current_setting('workbench.repetitions')::integer - 1) AS n ORDER BY n, order_id;

INSERT INTO order_details
SELECT order_id + 830 * n, product_id, unit_price, quantity, discount
FROM order_details, generate_series(1, current_setting('workbench.repetitions')::integer - 1) AS n
ORDER BY n, order_id, product_id;

-- Foreign keys, made after the rows are in: one set-based check per key instead of one look-up per row.

ALTER TABLE territories ADD FOREIGN KEY (region_id) REFERENCES region;
ALTER TABLE products ADD FOREIGN KEY (category_id) REFERENCES categories;
ALTER TABLE products ADD FOREIGN KEY (supplier_id) REFERENCES suppliers;
ALTER TABLE employees ADD FOREIGN KEY (reports_to) REFERENCES employees;
ALTER TABLE employee_territories ADD FOREIGN KEY (employee_id) REFERENCES employees;
ALTER TABLE employee_territories ADD FOREIGN KEY (territory_id) REFERENCES territories;
ALTER TABLE orders ADD FOREIGN KEY (customer_id) REFERENCES customers;
ALTER TABLE orders ADD FOREIGN KEY (employee_id) REFERENCES employees;
ALTER TABLE orders ADD FOREIGN KEY (ship_via) REFERENCES shippers;
ALTER TABLE order_details ADD FOREIGN KEY (order_id) REFERENCES orders;
ALTER TABLE order_details ADD FOREIGN KEY (product_id) REFERENCES products;
