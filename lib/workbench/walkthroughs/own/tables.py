"""The user's own tables: what a capture needs to know of them. `readiness.check` says which are refused."""

from psycopg import sql

from ...base import SourceError, World
from ...source.databases import MARIADB
from ...source.names import identifier
from ...source.queries import QUERIES
from .files import Declaration, OwnTable

MARIADB_COLUMNS = """
    SELECT c.column_name AS name, c.column_type AS type, coalesce(k.seq_in_index, 0) AS key_position,
           true AS is_primary, 0 AS oid,
           c.is_nullable = 'YES' AND coalesce(c.column_default, 'NULL') <> 'NULL' AS has_default
    FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
    LEFT JOIN information_schema.statistics k ON k.table_schema = c.table_schema
      AND k.table_name = c.table_name AND k.column_name = c.column_name AND k.index_name = 'PRIMARY'
    WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND c.table_name = %s
      AND c.table_schema = %s ORDER BY c.ordinal_position"""


def describe(world: World, declared: Declaration, table: OwnTable) -> OwnTable:
    """Return a table as it is in the source now.

    Args:
        world: the world of the source database.
        declared: its flow.
        table: the table, with a key if it is declared, and the columns that are not captured.

    Raises:
        SourceError: there is no such table; or its messages are in Avro, where a null would arrive as the default of
            its column.
    """
    db, database = declared.db, declared.database
    schema, _, name = table.source.rpartition(".")
    query = MARIADB_COLUMNS if db is MARIADB else QUERIES["own_columns"]
    catalog = db.query(world, query, [name, schema], database).set_index("name")
    excluded = [column for column in table.excluded if column in catalog.index]
    catalog = catalog.drop(index=excluded)
    if catalog.empty:
        raise SourceError(
            f"there is no table {table.source}",
            location=f"{table.source} in database {database}",
            expected="table or schema.table, as the database spells it; no view",
        )
    loose = [*catalog.index[catalog["has_default"].astype(bool)]]
    if loose and declared.format == "avro":
        raise SourceError(
            f"in Avro a null of {', '.join(loose)} would arrive as the column's default",
            location=f"{table.source} in database {database}",
            hint="--format json; a flow that has the table is forgotten first. Or ALTER TABLE … ALTER COLUMN … "
            "DROP DEFAULT, or SET NOT NULL",
        )
    natural = catalog[catalog["key_position"] > 0].sort_values("key_position")
    key = table.key if table.declares_key else [*natural.index]
    count = sql.SQL("SELECT count(*) AS n FROM {}").format(identifier(table.source))
    columns = {
        "columns": catalog["type"].to_dict(),
        "oid": int(catalog["oid"].iloc[0]),
        "excluded": excluded,
        "key": key,
        "declares_key": not (key == [*natural.index] and natural["is_primary"].all()),
        "rows": int(db.query(world, count, database=database)["n"][0]),
    }
    return table.model_copy(update=columns)
