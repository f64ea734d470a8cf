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
