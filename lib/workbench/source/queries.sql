-- The longer queries of PostgreSQL's catalog, and the statements that restore tables, by name (see queries.py).

-- name: identity
-- How replication identifies the rows of a table t (of pg_class).
CASE WHEN t.relreplident = 'f' THEN 'full row' ELSE coalesce((
    SELECT CASE t.relreplident WHEN 'i' THEN 'index' ELSE 'primary key' END FROM pg_index i WHERE i.indrelid = t.oid
    AND CASE t.relreplident WHEN 'i' THEN i.indisreplident WHEN 'd' THEN i.indisprimary ELSE false END), 'none') END

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

-- name: slots
SELECT slot_name, plugin, active, active_pid, wal_status, confirmed_flush_lsn::text AS confirmed,
       pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS bytes_behind
FROM pg_replication_slots WHERE database = current_database() ORDER BY 1

-- name: all_slots
-- A slot whose log was removed (lost) retains nothing.
SELECT slot_name, coalesce(database, '') AS database, active, wal_status,
       coalesce(confirmed_flush_lsn::text, '') AS confirmed,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint AS bytes_behind
FROM pg_replication_slots ORDER BY 1

-- name: published_and_readable
-- Tables of these schemas that a publication lists and a role may read.
SELECT t.schemaname, t.tablename FROM pg_publication_tables t JOIN pg_publication p USING (pubname)
WHERE NOT p.puballtables AND t.schemaname = ANY(%s)
AND has_table_privilege(%s, format('%%I.%%I', t.schemaname, t.tablename), 'SELECT')

-- name: heartbeat_denied
-- The functions for heartbeats (heartbeat.action.query) that a role may not execute; by default all roles may.
SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'
AND NOT has_function_privilege(%s, oid, 'EXECUTE')

-- name: unsupported_columns
-- The columns of tables (`schema.table`; NULL: of all) that Debezium does not publish: `schema.table.column`, type. Debezium's
-- PostgreSQL connector (3.5) supports the first list of types also in arrays, the second list not; and enums, and domains over these.
WITH RECURSIVE supported(type, in_arrays) AS (
    SELECT unnest(string_to_array('bool int2 int4 int8 oid float4 float8 numeric bpchar varchar text bytea date time timetz '
        'timestamp timestamptz json jsonb uuid inet cidr macaddr macaddr8 int4range int8range numrange tsrange tstzrange '
        'daterange citext', ' ')), true
    UNION ALL SELECT unnest(string_to_array('bit varbit char interval money xml point tsvector ltree hstore geometry '
        'geography vector halfvec sparsevec', ' ')), false),
domain AS (
    SELECT oid AS type, oid AS base, typbasetype AS next FROM pg_type
    UNION ALL SELECT d.type, t.oid, t.typbasetype FROM domain d JOIN pg_type t ON t.oid = d.next)
SELECT format('%%s.%%s.%%s', n.nspname, r.relname, a.attname),
       CASE WHEN a.attgenerated <> '' THEN 'generated' ELSE format_type(a.atttypid, a.atttypmod) END
FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid JOIN pg_namespace n ON n.oid = r.relnamespace
JOIN domain ON domain.type = a.atttypid AND domain.next = 0 JOIN pg_type t ON t.oid = domain.base
LEFT JOIN pg_type e ON t.typcategory = 'A' AND e.oid = t.typelem
WHERE format('%%s.%%s', n.nspname, r.relname) = ANY(coalesce(%s::text[], ARRAY[format('%%s.%%s', n.nspname, r.relname)]))
AND a.attnum > 0 AND NOT a.attisdropped
AND (a.attgenerated <> '' OR NOT CASE
    WHEN e.oid IS NOT NULL THEN (e.typname IN (SELECT type FROM supported WHERE in_arrays) OR e.typtype = 'e') AND a.attndims < 2
    -- a domain over an enum makes the connector fail
    ELSE t.typname IN (SELECT type FROM supported) OR t.typtype = 'e' AND a.atttypid = t.oid END)
ORDER BY r.relname, a.attnum

-- name: columns_and_keys
-- The columns that both a table and its copy have, and whether each is part of the primary key.
SELECT t.attname, t.attnum = ANY(i.indkey) FROM pg_attribute t JOIN pg_attribute k USING (attname)
JOIN pg_index i ON i.indrelid = t.attrelid AND i.indisprimary
WHERE t.attrelid = %s::regclass AND k.attrelid = %s::regclass AND t.attnum > 0 AND t.attgenerated = ''
ORDER BY t.attnum

-- name: existing_objects
-- Which of these schemas and tables exist.
SELECT nspname AS name FROM pg_namespace WHERE nspname = ANY(%s) UNION ALL
SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname || '.' || tablename = ANY(%s) ORDER BY 1

-- name: restore_added
-- Three statements restore a table t from its copy k: rows that were added are deleted, changed rows are updated, missing
-- rows are inserted.
DELETE FROM {t} t WHERE NOT EXISTS (SELECT FROM {k} k WHERE {same})

-- name: restore_changed
UPDATE {t} t SET ({columns}) = ROW({old}) FROM {k} k WHERE {same} AND ROW({now}) IS DISTINCT FROM ROW({old})

-- name: restore_missing
INSERT INTO {t} ({columns}) SELECT {old} FROM {k} k WHERE NOT EXISTS (SELECT FROM {t} t WHERE {same})

-- name: serial_columns
-- The columns of a table with a sequence (serial, identity).
SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
AND pg_get_serial_sequence(%s, attname) IS NOT NULL

-- name: reset_sequence
-- The sequence of a serial column continues after the last value of the column.
SELECT setval(pg_get_serial_sequence({}, {}), greatest(max({n}), 1), max({n}) IS NOT NULL) FROM {t}

-- name: type_names
-- PostgreSQL's names of types, by their oids; an enum is "enum".
SELECT oid, CASE typtype WHEN 'e' THEN 'enum' ELSE typname END FROM pg_type WHERE oid = ANY(%s)

-- name: not_null_columns
SELECT attname FROM pg_attribute WHERE attnotnull AND attrelid = to_regclass(%s)

-- name: poll_summary
-- The number of rows that a poll's statement reads; the offset columns of the last row; the number of rows with a NULL in an
-- offset column, which no poll reads.
WITH polled AS ({statement})
SELECT (SELECT count(*) FROM polled), (SELECT json_build_array({keys}) FROM polled ORDER BY ROW({keys}) DESC LIMIT 1),
    (SELECT count(*) FROM ({all}) AS q WHERE {count_nulls} AND num_nulls({keys}) > 0)

-- name: ancestors
-- The partitioned tables above each table.
SELECT t.name, n.nspname || '.' || a.relname AS ancestor
FROM unnest(%s::text[]) AS t (name)
CROSS JOIN to_regclass(quote_ident(split_part(name, '.', 1)) || '.' || quote_ident(split_part(name, '.', 2))) AS r (oid)
CROSS JOIN pg_partition_ancestors(r.oid) AS p (oid)
JOIN pg_class a ON a.oid = p.oid JOIN pg_namespace n ON n.oid = a.relnamespace
WHERE p.oid <> r.oid

-- name: own_columns
-- The columns of a table: position in its key (the primary key, else the index of the replica identity), and whether each
-- update in the log has the whole old row.
SELECT a.attname AS name, CASE b.typtype WHEN 'd' THEN format_type(b.typbasetype, b.typtypmod)
       ELSE format_type(a.atttypid, a.atttypmod) END AS type,
       coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0) AS key_position,
       coalesce(i.indisprimary, false) AS is_primary,
       NOT EXISTS (SELECT FROM pg_class t WHERE relreplident <> 'f' AND (t.oid = r.oid
                   OR t.oid IN (SELECT relid FROM pg_partition_tree(r.oid)))) AS is_full
FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid JOIN pg_namespace n ON n.oid = r.relnamespace
JOIN pg_type b ON b.oid = a.atttypid
LEFT JOIN LATERAL (SELECT indkey, indisprimary FROM pg_index WHERE indrelid = r.oid
    AND (indisprimary OR indisreplident AND r.relreplident = 'i') ORDER BY indisprimary DESC LIMIT 1) i ON true
WHERE r.relkind IN ('r', 'p') AND r.relname = %s AND n.nspname = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
