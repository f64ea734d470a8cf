-- The outbox: one denormalised row per order, kept by triggers in the transaction that changes the order. Change data
-- capture reads this table only; readers of its events need no join.
--
-- What comes out: inserting an order writes one row version with order_items and products NULL; each statement that
-- inserts one detail writes one more, with one item more; updating an order or a detail writes one more. (One INSERT of
-- several details writes a version per detail, too, but each holds all of them: row triggers run after the statement.)
-- Deleting an order or a detail writes nothing, as in the reference walkthrough.

-- The fill below joins these: without statistics the planner guesses their sizes.
ANALYZE orders, order_details, products;

CREATE TABLE cdc_events (
    order_id integer PRIMARY KEY,
    customer_id varchar(5),
    employee_id smallint,
    order_date date,
    required_date date,
    shipped_date date,
    ship_via smallint,
    freight double precision,
    ship_name varchar(40),
    ship_address varchar(60),
    ship_city varchar(15),
    ship_region varchar(15),
    ship_postal_code varchar(10),
    ship_country varchar(15),
    order_items jsonb,
    products jsonb
);

-- A delete must say where its row lies in the lake, that is its customer, too; with the key alone it could not be found
-- there. So the log gets the whole old row.
ALTER TABLE cdc_events REPLICA IDENTITY FULL;

-- How an order becomes its outbox row; the initial fill and the triggers both read this.
-- Money and discounts are rounded to two decimals: single precision 0.150000006 reads 0.15, 6.19000006 reads 6.19.
CREATE VIEW order_documents AS
SELECT o.order_id, o.customer_id, o.employee_id, o.order_date, o.required_date, o.shipped_date, o.ship_via,
       round(o.freight::numeric, 2)::double precision AS freight,
       o.ship_name, o.ship_address, o.ship_city, o.ship_region, o.ship_postal_code, o.ship_country,
       d.order_items, d.products
FROM orders o
LEFT JOIN (
    SELECT od.order_id,
           jsonb_agg(jsonb_build_object(
               'product_id', od.product_id,
               'unit_price', round(od.unit_price::numeric, 2),
               'quantity', od.quantity,
               'discount', round(od.discount::numeric, 2)) ORDER BY od.product_id) AS order_items,
           jsonb_agg(jsonb_build_object(
               'product_id', od.product_id,
               'product_name', p.product_name,
               'category_name', c.category_name,
               'supplier_name', s.company_name) ORDER BY od.product_id) AS products
    FROM order_details od
    JOIN products p USING (product_id)
    LEFT JOIN categories c USING (category_id)
    LEFT JOIN suppliers s ON s.supplier_id = p.supplier_id
    GROUP BY od.order_id
) d ON d.order_id = o.order_id;

-- Every column is written anew on each change, order_items and products too. So PostgreSQL logs them in full; a value it
-- stores out of line and believes unchanged would reach Debezium as a placeholder.
--
-- The order's row is locked first, by a statement of its own. Of two transactions that each add a detail to one order,
-- the second would otherwise read the details as they were before the first committed, wait only when it writes, and
-- then write the outbox row without the first one's item. So it waits before it reads: in READ COMMITTED the next
-- statement sees what was committed meanwhile; in the stricter levels PostgreSQL refuses the second transaction.
-- (A row lock, not an advisory one for each order: those are held in memory, and one UPDATE of 16,000 orders fills it.)
CREATE FUNCTION rebuild_cdc_event(wanted integer) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM orders WHERE order_id = wanted FOR NO KEY UPDATE;
    INSERT INTO cdc_events SELECT * FROM order_documents WHERE order_id = wanted
    ON CONFLICT (order_id) DO UPDATE SET
        customer_id = EXCLUDED.customer_id, employee_id = EXCLUDED.employee_id, order_date = EXCLUDED.order_date,
        required_date = EXCLUDED.required_date, shipped_date = EXCLUDED.shipped_date, ship_via = EXCLUDED.ship_via,
        freight = EXCLUDED.freight, ship_name = EXCLUDED.ship_name, ship_address = EXCLUDED.ship_address,
        ship_city = EXCLUDED.ship_city, ship_region = EXCLUDED.ship_region,
        ship_postal_code = EXCLUDED.ship_postal_code, ship_country = EXCLUDED.ship_country,
        order_items = EXCLUDED.order_items, products = EXCLUDED.products;
    IF NOT FOUND THEN  -- the order got another number
        DELETE FROM cdc_events WHERE order_id = wanted;
    END IF;
END $$;

CREATE FUNCTION capture_order() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.order_id <> NEW.order_id THEN
        PERFORM rebuild_cdc_event(OLD.order_id);
    END IF;
    PERFORM rebuild_cdc_event(NEW.order_id);
    RETURN NULL;
END $$;

-- One statement, no event per detail: these rows are the starting point that a snapshot reads.
INSERT INTO cdc_events SELECT * FROM order_documents ORDER BY order_id;

CREATE TRIGGER capture_order AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION capture_order();
CREATE TRIGGER capture_order AFTER INSERT OR UPDATE ON order_details FOR EACH ROW EXECUTE FUNCTION capture_order();
