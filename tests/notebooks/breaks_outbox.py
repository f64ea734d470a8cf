"""What is broken behind the checks of notebooks 00, 11 to 15 and 99; how a break is written stands in breaking.py."""
from breaking import Break, Run

SOURCE_DATABASE = [
    Run(
        Break("declining changes nothing", 'sources.execute(world, "CREATE SCHEMA datalake")',
              {"declining changes nothing": "datalake"}, back='sources.execute(world, "DROP SCHEMA datalake")'),
        Break("UPDATE orders SET freight = %s WHERE order_id = 10248\", [99.5]",
              'sources.execute(world, "ALTER TABLE orders DISABLE TRIGGER ALL")',
              {"the outbox follows the orders": "order_id=10248, freight: outbox 39.33, orders 99.5"}),
        Break("## 5. Say what may be captured",
              'sources.execute(world, "ALTER TABLE orders ENABLE TRIGGER ALL")', {}),
        Break("reading customers is refused",
              """
user = world.postgres.replication_user
sources.execute(world, f"GRANT SELECT ON customers TO {user}; GRANT DELETE ON cdc_events TO {user}")
sources.execute(world, "CREATE RULE kept AS ON DELETE TO cdc_events DO INSTEAD NOTHING")""",
              {"reading customers is refused": "no failure", "writing the outbox is refused": "no failure"},
              back='sources.execute(world, "DROP RULE kept ON cdc_events")'),
        Break("facts = sources.frame(",
              """
sources.execute(world, outbox.change("01_update_11077"))
sources.execute(world, outbox.change("02_insert_11075"))
sources.execute(world, "DELETE FROM cdc_events WHERE order_id = 10250")""",
              {"outbox rows = orders": ("outbox 829", "orders 830"),
               "items in the outbox = order details": ("outbox 2153", "order_details 2155"),
               "order 11075 is absent": "outbox 1", "order 11077 is there and not shipped": "outbox 0",
               "orders": ("source 830", "stated 829"), "details": ("source 2155", "stated 2152")}),
        Break("published = sources.publications(world)",
              """
sources.drop_publication(world, outbox.PUBLICATION)
sources.execute(world, f"CREATE TABLE nameless (n int); CREATE PUBLICATION {outbox.PUBLICATION} FOR ALL TABLES")""",
              {"published tables": "datalake.categories", "published FOR ALL TABLES": "database true",
               "published tables whose old rows cannot be named": "datalake.nameless"},
              back="sources.drop_publication(world, outbox.PUBLICATION)"),
        Break("a second load is refused", 'sources.execute(world, "ALTER SCHEMA datalake RENAME TO elsewhere")',
              {"a second load is refused": "no failure"},
              back='sources.execute(world, "DROP SCHEMA elsewhere CASCADE")'),
        harms="11_source_database"),
]

BREAKS = {"11_source_database": SOURCE_DATABASE}
