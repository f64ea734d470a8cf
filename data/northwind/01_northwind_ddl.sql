-- The tables of Northwind that the workbench fills. No schema is named here: the loader sets search_path.
--
-- order_id is integer, not smallint as in the public file: generated data with a scale factor goes on counting after
-- 11077, and smallint ends at 32767. Prices, freight and discounts stay single precision ("real"), as published: what a
-- reader of changes has to do about that (0.150000006 for 0.15) is part of the lesson.

CREATE TABLE region (
    region_id smallint PRIMARY KEY,
    region_description varchar(60) NOT NULL
);

CREATE TABLE territories (
    territory_id varchar(20) PRIMARY KEY,
    territory_description varchar(60) NOT NULL,
    region_id smallint NOT NULL
);

CREATE TABLE categories (
    category_id smallint PRIMARY KEY,
    category_name varchar(15) NOT NULL,
    description text
);

CREATE TABLE suppliers (
    supplier_id smallint PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    contact_name varchar(30),
    city varchar(15),
    country varchar(15),
    phone varchar(24)
);

CREATE TABLE shippers (
    shipper_id smallint PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    phone varchar(24)
);

CREATE TABLE products (
    product_id smallint PRIMARY KEY,
    product_name varchar(40) NOT NULL,
    supplier_id smallint,
    category_id smallint,
    quantity_per_unit varchar(20),
    unit_price real,
    units_in_stock smallint,
    units_on_order smallint,
    reorder_level smallint,
    discontinued integer NOT NULL
);

CREATE TABLE employees (
    employee_id smallint PRIMARY KEY,
    last_name varchar(20) NOT NULL,
    first_name varchar(10) NOT NULL,
    title varchar(30),
    birth_date date,
    hire_date date,
    city varchar(15),
    country varchar(15),
    reports_to smallint
);

CREATE TABLE employee_territories (
    employee_id smallint NOT NULL,
    territory_id varchar(20) NOT NULL,
    PRIMARY KEY (employee_id, territory_id)
);

CREATE TABLE customers (
    customer_id varchar(5) PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    contact_name varchar(30),
    contact_title varchar(30),
    address varchar(60),
    city varchar(15),
    region varchar(15),
    postal_code varchar(10),
    country varchar(15),
    phone varchar(24)
);

CREATE TABLE orders (
    order_id integer PRIMARY KEY,
    customer_id varchar(5),
    employee_id smallint,
    order_date date,
    required_date date,
    shipped_date date,
    ship_via smallint,
    freight real,
    ship_name varchar(40),
    ship_address varchar(60),
    ship_city varchar(15),
    ship_region varchar(15),
    ship_postal_code varchar(10),
    ship_country varchar(15)
);

CREATE TABLE order_details (
    order_id integer NOT NULL,
    product_id smallint NOT NULL,
    unit_price real NOT NULL,
    quantity smallint NOT NULL,
    discount real NOT NULL,
    PRIMARY KEY (order_id, product_id)
);
