-- The longer queries of PostgreSQL's catalog, and the statements that restore tables, by name (see queries.py).

-- name: session_settings
-- What our sessions need, whatever is set for the database or the role. A server may lack a setting (idle_session_timeout
-- came with PostgreSQL 14, transaction_timeout with 17).
SELECT set_config(name, value, false) FROM (VALUES
    ('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'), ('idle_session_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'), ('default_transaction_read_only', 'off'),
    ('default_transaction_isolation', 'read committed'), ('default_transaction_deferrable', 'off'),
    ('bytea_output', 'hex'), ('extra_float_digits', '1'), ('IntervalStyle', 'postgres'), ('DateStyle', 'ISO'),
    ('TimeZone', 'UTC'), ('xmlbinary', 'base64'), ('xmloption', 'content'), ('quote_all_identifiers', 'off'),
    ('standard_conforming_strings', 'on'), ('escape_string_warning', 'on'), ('transform_null_equals', 'off'),
    ('array_nulls', 'on')
) AS s (name, value) WHERE current_setting(name, true) IS NOT NULL

-- name: identity
-- How replication identifies the rows of a table t (of pg_class).
CASE WHEN t.relreplident = 'f' THEN 'full row' ELSE coalesce((
    SELECT CASE t.relreplident WHEN 'i' THEN 'index' ELSE 'primary key' END FROM pg_index i WHERE i.indrelid = t.oid
    AND i.indimmediate AND i.indisvalid  -- PostgreSQL ignores a deferrable key, and then rejects UPDATE and DELETE
    AND CASE t.relreplident WHEN 'i' THEN i.indisreplident WHEN 'd' THEN i.indisprimary ELSE false END), 'none') END

-- name: base_type
-- The type below the domains of an attribute a, and its modifier.
(WITH RECURSIVE b (type, modifier, depth) AS (SELECT a.atttypid, a.atttypmod, 0
    UNION ALL SELECT t.typbasetype, greatest(b.modifier, t.typtypmod), depth + 1
    FROM b JOIN pg_type t ON t.oid = b.type AND t.typtype = 'd')
SELECT type, modifier FROM b ORDER BY depth DESC LIMIT 1)

-- name: key_indexes
-- The indexes of which each entry identifies one row, after each statement and not only at the end of a transaction.
SELECT i.indrelid, i.indisprimary, i.indisreplident, quote_ident(c.relname) AS index,
    array_agg(a.attname::text ORDER BY k.position) AS columns
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
CROSS JOIN unnest(i.indkey) WITH ORDINALITY k (number, position)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number AND a.attnotnull
WHERE i.indisunique AND NOT i.indisexclusion AND i.indimmediate AND i.indisvalid AND i.indisready AND i.indpred IS NULL
AND k.position <= i.indnkeyatts
AND NOT EXISTS (SELECT FROM pg_constraint n  -- NOT NULL ... NOT VALID
    WHERE n.conrelid = i.indrelid AND n.contype = 'n' AND NOT n.convalidated AND a.attnum = ANY(n.conkey))
GROUP BY i.indexrelid, c.relname HAVING count(*) = max(i.indnkeyatts)

-- name: table
-- A table, and the names of the table or its partitions without a replica identity, which partitions do not inherit.
SELECT n.nspname, r.relname, ARRAY(
    SELECT format('%%s.%%s', m.nspname, t.relname) FROM pg_class t JOIN pg_namespace m ON m.oid = t.relnamespace
    WHERE (t.oid = r.oid OR t.oid IN (SELECT relid FROM pg_partition_tree(r.oid))) AND {identity} = 'none' ORDER BY 1)
FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE r.relkind IN ('r', 'p') AND r.relname = %s AND n.nspname = coalesce(nullif(%s, ''), current_schema())

-- name: publications
SELECT p.pubname AS publication, p.puballtables AS all_tables, s.schemaname || '.' || s.tablename AS "table",
       {identity} AS identity
FROM pg_publication p LEFT JOIN pg_publication_tables s USING (pubname)
LEFT JOIN pg_namespace n ON n.nspname = s.schemaname
LEFT JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = s.tablename ORDER BY 1, 3

-- name: tables_published_by_partition
-- The partitioned tables whose changes a publication publishes under the names of their partitions.
SELECT DISTINCT p.pubname AS publication, n.nspname || '.' || r.relname AS "table"
FROM pg_publication p JOIN pg_publication_tables s USING (pubname)
JOIN pg_namespace m ON m.nspname = s.schemaname
JOIN pg_class t ON t.relnamespace = m.oid AND t.relname = s.tablename AND t.relispartition
JOIN pg_class r ON r.oid = pg_partition_root(t.oid) JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE NOT p.pubviaroot ORDER BY 1, 2

-- name: all_slots
-- A slot whose log was removed (lost) retains nothing.
SELECT slot_name, plugin, coalesce(database, '') AS database, active, wal_status,
       coalesce(confirmed_flush_lsn::text, '') AS confirmed,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint AS bytes_behind
FROM pg_replication_slots ORDER BY 1

-- name: grants
-- The statements with which a role may read tables and send heartbeats, which by default all roles may (heartbeat.action.query).
-- In the schemas of the tables the role keeps the permission to read other tables that a publication lists.
-- Parameters: role, and the schemas and names of the tables.
WITH given AS (
    SELECT %(role)s::text AS role, schema_name, table_name FROM unnest(%(schemas)s::text[], %(tables)s::text[]) AS g(schema_name, table_name)),
readable AS (
    SELECT * FROM given
    UNION SELECT role, t.schemaname, t.tablename FROM given
    JOIN pg_publication_tables t ON t.schemaname = schema_name JOIN pg_publication p USING (pubname)
    WHERE NOT p.puballtables AND has_table_privilege(role, format('%%I.%%I', t.schemaname, t.tablename), 'SELECT'))
SELECT statement FROM (
    SELECT 1 AS step, format('REVOKE ALL ON ALL TABLES IN SCHEMA %%I FROM %%I', schema_name, role) AS statement FROM given
    UNION SELECT 2, format('GRANT USAGE ON SCHEMA %%I TO %%I', schema_name, role) FROM given
    UNION SELECT 3, format('GRANT SELECT ON %%I.%%I TO %%I', schema_name, table_name, role) FROM readable
    UNION SELECT 4, format('GRANT EXECUTE ON FUNCTION %%s TO %%I', f.oid::regprocedure, role) FROM given, pg_proc f
    WHERE proname = 'pg_logical_emit_message' AND NOT has_function_privilege(role, f.oid, 'EXECUTE')) s
ORDER BY step, statement

-- name: unsupported_columns
-- The columns of tables (`schema.table`; NULL: of all) that Debezium does not publish, or that the lake cannot have:
-- `schema.table.column`, type. Debezium's PostgreSQL connector (3.5) supports the first list of types also in arrays, the
-- second list not; and enums, and domains over these.
WITH supported(type, in_arrays) AS (
    SELECT unnest(string_to_array('bool int2 int4 int8 oid float4 float8 numeric bpchar varchar text bytea date time timetz '
        'timestamp timestamptz json jsonb uuid inet cidr macaddr macaddr8 int4range int8range numrange tsrange tstzrange '
        'daterange citext', ' ')), true
    UNION ALL SELECT unnest(string_to_array('bit varbit char interval money xml point tsvector ltree hstore geometry '
        'geography vector halfvec sparsevec', ' ')), false),
-- not a type of the user with such a name: those of PostgreSQL and of extensions. Debezium finds the latter by name.
known AS (SELECT t.oid, in_arrays FROM pg_type t JOIN supported ON type = typname AND typtype IN ('b', 'r')
    WHERE typnamespace = 'pg_catalog'::regnamespace OR EXISTS (SELECT FROM pg_depend d
        WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
    AND NOT EXISTS (SELECT FROM pg_type namesake WHERE namesake.typname = t.typname AND namesake.oid <> t.oid))
SELECT format('%%s.%%s.%%s', n.nspname, r.relname, a.attname),
       CASE WHEN a.attgenerated <> '' THEN 'generated' ELSE format_type(a.atttypid, a.atttypmod) END
FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid JOIN pg_namespace n ON n.oid = r.relnamespace
CROSS JOIN LATERAL {base_type} b JOIN pg_type t ON t.oid = b.type
LEFT JOIN pg_type e ON t.typcategory = 'A' AND e.oid = t.typelem
WHERE format('%%s.%%s', n.nspname, r.relname) = ANY(coalesce(%s::text[], ARRAY[format('%%s.%%s', n.nspname, r.relname)]))
AND a.attnum > 0 AND NOT a.attisdropped
AND (a.attgenerated <> ''
    -- no decimal type of the lake has a scale that is negative or greater than the precision, or more than 38 digits
    OR coalesce(e.oid, t.oid) = 'numeric'::regtype AND b.modifier > 0 AND (((b.modifier - 4) & 1024) > 0
        OR ((b.modifier - 4) & 2047) > (b.modifier - 4) >> 16 OR (b.modifier - 4) >> 16 > 38)
    -- PostgreSQL's JDBC driver reads the items of a list as java.sql.Time, which has milliseconds
    OR e.oid = 'time'::regtype AND b.modifier NOT BETWEEN 0 AND 3
    OR NOT CASE
    WHEN e.oid IS NOT NULL THEN (e.oid IN (SELECT oid FROM known WHERE in_arrays) OR e.typtype = 'e') AND a.attndims < 2
    -- a domain over an enum makes the connector fail
    ELSE t.oid IN (SELECT oid FROM known) OR t.typtype = 'e' AND a.atttypid = t.oid END)
ORDER BY r.relname, a.attnum

-- name: existing_objects
-- Which of these schemas and tables exist.
SELECT nspname::text AS name FROM pg_namespace WHERE nspname = ANY(%s) UNION ALL  -- a name has 63 bytes
SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname || '.' || tablename = ANY(%s) ORDER BY 1

-- name: sequences
-- The sequences of a table's columns, each with the last number that it gave.
SELECT s.seqrelid::regclass::text, coalesce(pg_sequence_last_value(s.seqrelid)::text, '')
FROM pg_sequence s JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = s.seqrelid
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = %s::regclass AND d.deptype IN ('a', 'i') ORDER BY 1

-- name: publications_and_grants
-- The statements that publish tables again, and let roles use them, after the tables were created anew.
SELECT format('ALTER PUBLICATION %%I ADD TABLE %%I.%%I', p.pubname, n.nspname, c.relname)
    -- since PostgreSQL 15: the published columns, and the condition on rows
    || coalesce((SELECT ' (' || string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) || ')' FROM pg_attribute a
        WHERE a.attrelid = c.oid AND to_jsonb(r)->'prattrs' @> to_jsonb(a.attnum)), '')
    || coalesce(' WHERE ' || (to_jsonb(v)->>'rowfilter'), '')
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication_tables v ON (v.pubname, v.schemaname, v.tablename) = (p.pubname, n.nspname, c.relname)
WHERE n.nspname = %(schema)s AND c.relname = ANY(%(tables)s)
UNION SELECT format('GRANT USAGE ON SCHEMA %%I TO %%I', table_schema, grantee)
FROM information_schema.role_table_grants
WHERE table_schema = %(schema)s AND table_name = ANY(%(tables)s) AND grantee NOT IN (current_user, 'PUBLIC')
UNION SELECT format('GRANT %%s ON %%I.%%I TO %%I', privilege_type, table_schema, table_name, grantee)
FROM information_schema.role_table_grants
WHERE table_schema = %(schema)s AND table_name = ANY(%(tables)s) AND grantee NOT IN (current_user, 'PUBLIC')

-- name: type_names
-- PostgreSQL's names of types, by their oids; an enum is "enum".
SELECT oid, CASE typtype WHEN 'e' THEN 'enum' ELSE typname END FROM pg_type WHERE oid = ANY(%s)

-- name: not_null_columns
SELECT attname FROM pg_attribute WHERE attnotnull AND attrelid = to_regclass(%s)

-- name: poll_summary
-- The number of rows that a poll's statement reads; the latest timestamp; the number of rows without one, which no poll reads.
WITH polled AS ({statement})
SELECT (SELECT count(*) FROM polled), (SELECT to_json(max({timestamp})) #>> '{{}}' FROM polled),
    (SELECT count(*) FROM ({all}) AS q WHERE {count_nulls} AND {timestamp} IS NULL)

-- name: own_columns
-- The columns of a table: type, and position in its key (that of the replica identity's index, else the primary key), and
-- whether it may be null and has a default.
WITH key_index AS ({key_indexes})
SELECT a.attname AS name, r.oid::bigint AS oid, format_type(b.type, b.modifier) AS type,
       coalesce(array_position(i.columns, a.attname::text), 0) AS key_position, coalesce(i.indisprimary, false) AS is_primary,
       NOT a.attnotnull AND (a.atthasdef AND a.attgenerated = '' OR d.typdefault IS NOT NULL) AS has_default
FROM pg_attribute a JOIN pg_type d ON d.oid = a.atttypid JOIN pg_class r ON r.oid = a.attrelid JOIN pg_namespace n ON n.oid = r.relnamespace
CROSS JOIN LATERAL {base_type} b
LEFT JOIN LATERAL (SELECT columns, indisprimary FROM key_index WHERE indrelid = r.oid
    AND CASE r.relreplident WHEN 'i' THEN indisreplident ELSE indisprimary END) i ON true
WHERE r.relkind IN ('r', 'p') AND r.relname = %s::text AND n.nspname = %s::text AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: storage
-- A table, its columns, the files of it and of its partitions, and the transactions that attached these. A TRUNCATE
-- gives a table another file.
WITH t AS (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = %s::text AND c.relname = %s::text)
SELECT 'table ' || oid AS id FROM t
UNION ALL
SELECT 'column ' || a.attnum || ' ' || a.attname FROM pg_attribute a JOIN t ON t.oid = a.attrelid
WHERE a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT concat(pg_relation_filenode(p.relid), (
    SELECT ' attached by ' || string_agg(i.xmin::text, ', ') FROM pg_inherits i WHERE i.inhrelid = p.relid)) AS id
FROM t CROSS JOIN LATERAL (
    SELECT t.oid::regclass AS relid UNION SELECT relid FROM pg_partition_tree(t.oid)) p
WHERE pg_relation_filenode(p.relid) IS NOT NULL ORDER BY 1

-- name: replaced_tables
-- Which of these tables are other ones than those with these oids: they were dropped, and created anew.
SELECT n.nspname || '.' || t.relname AS name FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname || '.' || t.relname = ANY(%s) AND t.oid::bigint <> ALL(%s::bigint[]) ORDER BY 1
