-- The queries of the readiness check (see readiness.py). A row is one finding: an empty problem is none. `statements`
-- removes the problem; several statements are separated by the record separator, chr(30).

-- name: postgres_server
-- The server, and the rights of the user who creates publications (me) and of the user of the connectors, which a
-- superuser creates. Parameter: the user of the connectors.
WITH asked AS (SELECT %s::text AS reader),
me AS (
    SELECT r.rolname, quote_ident(r.rolname) AS role, c.rolname AS connector,
        coalesce(c.rolname, asked.reader) AS reader, current_setting('server_version_num')::int AS version, d.datname,
        quote_ident(d.datname) AS database, coalesce(c.rolreplication OR c.rolsuper OR EXISTS (
            SELECT FROM pg_roles g WHERE g.rolname IN ('rds_replication', 'neon_superuser')
            AND pg_has_role(c.oid, g.oid, 'MEMBER')), false) AS replicates,
        EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_superuser') AS is_rds
    FROM asked JOIN pg_roles r ON r.rolname = current_user JOIN pg_database d ON d.datname = current_database()
    LEFT JOIN pg_roles c ON c.rolname = CASE WHEN r.rolsuper THEN r.rolname ELSE asked.reader END),
setting AS (
    SELECT name, setting AS value, CASE
        WHEN is_rds THEN format('-- in the parameter group: %%s; then restart the server', CASE name
            WHEN 'wal_level' THEN 'rds.logical_replication = 1' ELSE name || ' = ' || wanted END)
        ELSE format('ALTER SYSTEM SET %%I = %%L; -- takes effect after a restart of the server; a managed one has a setting '
            'for it (docs/your_own.md)', name, wanted) END AS statement
    FROM me, (SELECT name, setting, CASE name WHEN 'wal_level' THEN 'logical' ELSE (setting::int + 10)::text END AS wanted
        FROM pg_settings WHERE name IN ('wal_level', 'max_replication_slots', 'max_wal_senders')) s),
slots AS (SELECT count(*) AS used, count(*) FILTER (WHERE NOT active) AS idle,
    coalesce(min(slot_name::text) FILTER (WHERE NOT active), '') AS an_idle FROM pg_replication_slots),
senders AS (SELECT count(*) AS used FROM pg_stat_replication)
SELECT 'version' AS item, format('PostgreSQL %%s', current_setting('server_version')) AS value,
    CASE WHEN version < 140000 THEN 'too old: an idle slot retains the log' ELSE '' END AS problem,
    CASE WHEN version < 140000 THEN '-- use PostgreSQL 14 or later' ELSE '' END AS statements FROM me
UNION ALL
SELECT 'TLS', CASE WHEN ssl THEN format('%%s, %%s', version, cipher) WHEN inet_client_addr() IS NULL
    OR inet_client_addr() = inet_server_addr() THEN 'none, on this machine' ELSE 'none: the connection is not encrypted' END,
    '', '' FROM pg_stat_ssl WHERE pid = pg_backend_pid()
UNION ALL
SELECT 'encoding', 'SQL_ASCII', 'a text that is not UTF-8 stops the connector, and nothing tells which bytes a text has',
    '-- restore a dump of the database into one with ENCODING ''UTF8''' FROM pg_database
    WHERE datname = current_database() AND pg_encoding_to_char(encoding) = 'SQL_ASCII'
UNION ALL
SELECT 'types', string_agg(name, ', ' ORDER BY name), 'Debezium reads all types of the database at each start, and stops at an enum '
    'without labels and at a domain over an enum', string_agg(CASE typtype
        WHEN 'd' THEN format('-- when no column has this type (ALTER TABLE ... ALTER COLUMN ... TYPE ...): DROP DOMAIN %%s;', name)
        ELSE format('-- add a label: ALTER TYPE %%s ADD VALUE ''...''; or, if no column has this type: DROP TYPE %%s;', name, name)
        END, E'\x1e' ORDER BY name)
    FROM (SELECT t.oid, typtype, format('%%I.%%I', nspname, typname) AS name FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace
        WHERE typcategory = 'E') t  -- a domain has the category of its type
    WHERE NOT EXISTS (SELECT FROM pg_enum WHERE enumtypid = t.oid) HAVING count(*) > 0
UNION ALL
SELECT 'primary', 'a read replica', 'a publication cannot be created here', '-- set the host of the source to the primary'
    WHERE pg_is_in_recovery()
UNION ALL
SELECT name, value, CASE value WHEN 'logical' THEN '' ELSE 'must be logical' END,
    CASE value WHEN 'logical' THEN '' ELSE statement END FROM setting WHERE name = 'wal_level'
UNION ALL
SELECT name, format('%%s of %%s used, %%s without a reader', used, value, idle),
    CASE WHEN used >= value::int THEN 'no replication slot is free' ELSE '' END,
    CASE WHEN used < value::int THEN '' WHEN idle > 0 THEN format(
        E'-- or, if nothing will read it again: SELECT pg_drop_replication_slot(%%L)\x1e%%s', an_idle, statement)
        ELSE statement END FROM setting, slots WHERE name = 'max_replication_slots'
UNION ALL
SELECT name, format('%%s of %%s used', used, value), CASE WHEN used >= value::int THEN 'no WAL sender is free' ELSE '' END,
    CASE WHEN used >= value::int THEN statement ELSE '' END FROM setting, senders WHERE name = 'max_wal_senders'
UNION ALL
SELECT name, CASE setting WHEN '-1' THEN 'no limit: the log that a stopped connector needs can fill the disk'
    ELSE setting || ' ' || unit END, '', '' FROM pg_settings WHERE name = 'max_slot_wal_keep_size'
UNION ALL
SELECT 'replication', CASE WHEN replicates THEN 'granted' ELSE 'not granted' END,
    CASE WHEN replicates THEN '' WHEN connector IS NULL THEN format('there is no role %%I', reader)
        ELSE format('role %%I may not replicate', reader) END,
    CASE WHEN replicates THEN '' ELSE concat_ws(E'\x1e', CASE WHEN connector IS NULL
        THEN format(E'CREATE ROLE %%I LOGIN;\x1e\\password %%I', reader, reader) END,
        format(CASE WHEN is_rds THEN 'GRANT rds_replication TO %%I;' ELSE 'ALTER ROLE %%I REPLICATION;' END,
            reader)) END FROM me
UNION ALL
SELECT 'publication', CASE WHEN granted THEN 'may be created' ELSE 'may not be created' END,
    CASE WHEN granted THEN '' ELSE format('role %%s has no CREATE on database %%s', role, database) END,
    CASE WHEN granted THEN '' ELSE format('GRANT CREATE ON DATABASE %%s TO %%s;', database, role) END
    FROM me, has_database_privilege(datname, 'CREATE') AS granted
UNION ALL
SELECT 'heartbeat', 'not granted', format('role %%I may not execute %%s', reader, f.oid::regprocedure),
    format('GRANT EXECUTE ON FUNCTION %%s TO %%I;', f.oid::regprocedure, reader) FROM me, pg_proc f
    WHERE proname = 'pg_logical_emit_message' AND NOT coalesce(has_function_privilege(connector, f.oid, 'EXECUTE'), true)

-- name: postgres_tables
-- One row for each table. Parameters: the tables to check (NULL: all), the user of the connectors, the tables, and the
-- columns that are not captured.
WITH unsupported(name, type) AS ({unsupported_columns}),
key_index AS ({key_indexes}),
me AS (
    SELECT r.rolname, c.oid AS connector, coalesce(c.rolname, asked.reader) AS reader, c.rolsuper OR c.rolbypassrls AS sees_all
    FROM (SELECT %s::text AS reader) asked JOIN pg_roles r ON r.rolname = current_user
    LEFT JOIN pg_roles c ON c.rolname = CASE WHEN r.rolsuper THEN r.rolname ELSE asked.reader END),
target AS (
    SELECT t.oid, n.oid AS schema_oid, n.nspname, t.relname, t.relkind, t.relowner, t.relrowsecurity, t.relforcerowsecurity,
        format('%%I.%%I', n.nspname, t.relname) AS quoted, {identity} AS identity,
        pg_has_role(t.relowner, 'USAGE') AS owned,
        t.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = t.oid) AS has_children
    FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE t.relkind IN ('r', 'p') AND NOT t.relispartition AND t.relpersistence <> 't'
    AND n.nspname NOT LIKE 'pg\_%%' AND n.nspname <> 'information_schema'
    AND n.nspname || '.' || t.relname = ANY(coalesce(%s::text[], ARRAY[n.nspname || '.' || t.relname]))
    AND NOT EXISTS (SELECT FROM pg_depend d  -- tables of an extension
        WHERE d.classid = 'pg_class'::regclass AND d.objid = t.oid AND d.deptype = 'e')),
member AS (
    SELECT r.oid AS root, t.oid, t.relkind, t.reltuples, t.relpersistence, t.reltoastrelid,
        format('%%I.%%I', n.nspname, t.relname) AS quoted, {identity} AS identity,
        (SELECT index FROM key_index WHERE indrelid = t.oid ORDER BY cardinality(columns), index LIMIT 1) AS key_index,
        EXISTS (SELECT FROM pg_index WHERE indrelid = t.oid AND indisprimary) AS has_key
    FROM target r, LATERAL (SELECT r.oid UNION SELECT relid FROM pg_partition_tree(r.oid)) m(oid)
    JOIN pg_class t ON t.oid = m.oid JOIN pg_namespace n ON n.oid = t.relnamespace),
whole AS (
    SELECT root, count(*) FILTER (WHERE relkind <> 'p') AS leaves, sum(pg_total_relation_size(oid)) AS bytes,
        sum(pg_relation_size(oid)) AS heap,
        CASE WHEN min(reltuples) FILTER (WHERE relkind <> 'p') >= 0 THEN sum(reltuples) FILTER (WHERE relkind <> 'p') END AS estimate,
        string_agg(CASE WHEN has_key THEN format('ALTER TABLE %%s REPLICA IDENTITY DEFAULT;', quoted)
            WHEN key_index IS NOT NULL THEN format('ALTER TABLE %%s REPLICA IDENTITY USING INDEX %%s;', quoted, key_index) END, E'\x1e' ORDER BY quoted)
            FILTER (WHERE identity = 'none') AS identity_statements, bool_or(identity = 'none') AS lacks_identity,
        string_agg(format('ALTER TABLE %%s REPLICA IDENTITY FULL;', quoted), E'\x1e' ORDER BY quoted)
            FILTER (WHERE identity <> 'full row' AND reltoastrelid <> 0) AS full_statements,
        string_agg(format('ALTER TABLE %%s SET LOGGED; -- writes the table anew', quoted), E'\x1e' ORDER BY quoted)
            FILTER (WHERE relpersistence = 'u' AND relkind = 'r') AS unlogged,
        string_agg(quoted, ', ' ORDER BY quoted) FILTER (WHERE relkind = 'f') AS foreign_partitions,
        json_agg(json_build_object('table', quoted, 'is_full', identity = 'full row', 'columns', (
            SELECT to_json(columns) FROM key_index WHERE indrelid = member.oid
            AND CASE identity WHEN 'index' THEN indisreplident WHEN 'primary key' THEN indisprimary END)))
            FILTER (WHERE identity <> 'none') AS identities
    FROM member GROUP BY root),
key AS (
    SELECT indrelid AS root, columns FROM key_index JOIN target ON target.oid = indrelid
    WHERE CASE WHEN identity = 'index' THEN indisreplident ELSE indisprimary END),
deferrable_key AS (
    SELECT conrelid AS root, format('ALTER TABLE %%s DROP CONSTRAINT %%I, ADD CONSTRAINT %%I %%s;', quoted, conname, conname,
        replace(replace(pg_get_constraintdef(c.oid), ' DEFERRABLE', ''), ' INITIALLY DEFERRED', '')) AS statement
    FROM pg_constraint c JOIN target ON target.oid = conrelid WHERE contype = 'p' AND condeferrable),
columns AS (
    SELECT a.attrelid AS root, string_agg(format('%%s %%s: %%s', a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN l.typtype = 'e' THEN 'a list with a null arrives as null'
            WHEN e.typname IN ('bit', 'varbit') THEN 'a value with eight zeros in front arrives without them'
            WHEN b.type = 'money'::regtype THEN 'a snapshot loses digits of amounts beyond 90071992547409.92'
            WHEN b.modifier = -1 THEN 'no precision' ELSE 'a list with NaN arrives as null' END), '; ' ORDER BY a.attnum)
            FILTER (WHERE u.name IS NULL AND (l.typtype = 'e' OR b.type IN ('numeric[]'::regtype, 'money'::regtype)
                OR e.typname IN ('bit', 'varbit') AND (b.modifier = -1 OR b.modifier >= 8)
                OR b.type = 'numeric'::regtype AND b.modifier = -1)) AS attention,
        string_agg(format('ALTER TABLE %%s ALTER COLUMN %%I TYPE %%s;', target.quoted, a.attname, b.type::regtype), E'\x1e')
            FILTER (WHERE t.typtype = 'd' AND e.typtype = 'e' AND a.attname <> ALL(%s::text[])) AS enum_domains,
        string_agg(quote_ident(a.attname), ', ') FILTER (WHERE b.type = 'numeric'::regtype) AS numerics,
        -- NaN and infinity have no scale
        string_agg(CASE WHEN b.modifier = -1 THEN format($f$%%L || max(length(trunc(abs(%%I))::text)) FILTER (WHERE min_scale(%%I) IS NOT NULL)
            || ' digits before and ' || max(min_scale(%%I)) || ' after the decimal point in the first 10,000 rows'
            || ' (decimal(38,10) has 28 and 10; capture chooses up to 30 after it)', $f$,
            a.attname || ': at most ', a.attname, a.attname, a.attname) ELSE '' END
            || format('CASE WHEN bool_or(%%I IS NOT NULL AND min_scale(%%I) IS NULL) THEN %%L END', a.attname, a.attname,
                a.attname || ': NaN and infinities in the first 10,000 rows arrive as null'), ', ' ORDER BY a.attnum)
            FILTER (WHERE b.type = 'numeric'::regtype) AS samples,
        json_agg(a.attname ORDER BY a.attnum) AS names,
        coalesce(json_agg(json_build_array(a.attname, u.type) ORDER BY a.attnum) FILTER (WHERE u.name IS NOT NULL), '[]')
            AS unsupported,
        -- Different values of these types are different in a message, too. Not so are lists (their bounds are not sent),
        -- intervals (a month becomes days), bit varying (B'0' and B'00') and timetz.
        coalesce(json_agg(a.attname) FILTER (WHERE e.typtype <> 'e' AND e.typname <> 'citext' AND b.type <> ALL(
            '{{int2,int4,int8,oid,uuid,text,varchar,bpchar,bytea,numeric,float4,float8,bool,date,time,timestamp,timestamptz,
            inet,cidr,macaddr,int4range,int8range,jsonb}}'::regtype[])), '[]') AS no_keys
    FROM target JOIN pg_attribute a ON a.attrelid = target.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid CROSS JOIN LATERAL {base_type} b JOIN pg_type e ON e.oid = b.type
    LEFT JOIN pg_type l ON e.typcategory = 'A' AND l.oid = e.typelem
    LEFT JOIN unsupported u ON u.name = format('%%s.%%s.%%s', target.nspname, target.relname, a.attname) GROUP BY 1),
-- The columns whose large values are lost if an update does not change them, and the log has no whole old row: Debezium then
-- reads the value from the table. Tried are these types of columns and of keys. (With at most 96 bits no value is large.)
tried AS (
    SELECT '{{text,varchar,bpchar,bytea,json,jsonb,tsvector,numeric,inet,cidr,int4range,int8range,numrange,tsrange,tstzrange,
        daterange,int4[],int8[],bpchar[],varchar[],text[],bytea[],date[],json[],jsonb[]}}'::regtype[] AS columns,
        '{{int2,int4,int8,oid,text,varchar,bpchar,uuid,bool,numeric,timestamptz,inet,cidr,macaddr}}'::regtype[] AS keys),
typed AS (
    SELECT a.attrelid AS root, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod) AS type,
        a.attlen = -1 AND a.attstorage <> 'p' AND a.attname <> ALL(%s::text[])
            AND NOT EXISTS (SELECT FROM unsupported u  -- a problem of its own
                WHERE u.name = format('%%s.%%s.%%s', target.nspname, target.relname, a.attname)) AS may_be_large,
        b.type = ANY(tried.columns) OR e.typname IN ('bit', 'varbit') AND b.modifier BETWEEN 1 AND 96 AS is_read,
        -- Debezium 3.5 reads the row by the primary key, and does not quote its names
        CASE WHEN primary_key.indkey IS NULL THEN a.attname = ANY(key.columns) ELSE a.attnum = ANY(primary_key.indkey) END
            AND (b.type <> ALL(tried.keys) AND e.typtype <> 'e'
            OR quote_ident(a.attname) <> a.attname) AS is_other_key
    FROM tried, target JOIN pg_attribute a ON a.attrelid = target.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid CROSS JOIN LATERAL {base_type} b JOIN pg_type e ON e.oid = b.type
    LEFT JOIN key ON key.root = target.oid
    LEFT JOIN pg_index primary_key ON primary_key.indrelid = target.oid AND primary_key.indisprimary),
unread AS (
    SELECT root, string_agg(format('%%s (%%s)', attname, type), ', ' ORDER BY attnum) AS columns FROM typed
    WHERE may_be_large AND (NOT is_read OR root IN (SELECT root FROM typed WHERE is_other_key)) GROUP BY 1)
SELECT 'table ' || nspname || '.' || relname AS item, nspname AS schema, relname AS "table",
    CASE relkind WHEN 'p' THEN format('partitioned, %%s partitions', leaves) ELSE 'table' END AS kind,
    estimate::bigint AS rows, bytes::bigint AS bytes, coalesce(array_to_string(key.columns, ', '), '') AS key, identity,
    noted AS attention,
    concat_ws('; ', CASE WHEN NOT visible THEN 'no USAGE on the schema' END, CASE WHEN NOT readable THEN 'no SELECT' END,
        CASE WHEN NOT owned THEN 'not the owner: cannot be published' END,
        CASE WHEN hidden THEN 'row security hides rows' END, CASE WHEN unlogged IS NOT NULL THEN 'unlogged' END,
        CASE WHEN has_children THEN 'changes of its child tables (INHERITS) would not arrive' END,
        CASE WHEN foreign_partitions IS NOT NULL THEN format('changes of foreign partitions are not in the log: %%s', foreign_partitions) END,
        CASE WHEN deferrable_key.statement IS NOT NULL AND key.columns IS NULL
            THEN 'a DEFERRABLE primary key identifies no row while a transaction runs' END,
        CASE WHEN relkind = 'p' AND NOT has_primary_key THEN 'no primary key for partitions that are created later to inherit' END,
        CASE WHEN lacks_identity THEN 'no replica identity: PostgreSQL would reject each UPDATE and DELETE' END,
        CASE WHEN unread.columns IS NOT NULL AND full_statements IS NOT NULL THEN format(
            'a large value that an update does not change would be lost: %%s', unread.columns) END,
        CASE WHEN enum_domains IS NOT NULL THEN 'a domain over an enum stops the connector' END) AS problem,
    concat_ws(E'\x1e', CASE WHEN NOT visible THEN format('GRANT USAGE ON SCHEMA %%I TO %%I;', nspname, reader) END,
        CASE WHEN NOT readable THEN format('GRANT SELECT ON TABLE %%s TO %%I;', quoted, reader) END,
        -- membership in a role that is a superuser would grant too much
        CASE WHEN owned THEN NULL WHEN o.rolsuper THEN format('ALTER TABLE %%s OWNER TO %%I;', quoted, me.rolname)
            ELSE format('GRANT %%I TO %%I;', o.rolname, me.rolname) END,
        CASE WHEN hidden THEN format('ALTER ROLE %%I BYPASSRLS;', reader) END, unlogged,
        CASE WHEN has_children THEN '-- capture its child tables; or turn them into partitions' END,
        CASE WHEN foreign_partitions IS NOT NULL THEN '-- capture the other partitions at their servers; or detach the foreign ones' END,
        CASE WHEN key.columns IS NULL THEN deferrable_key.statement END,
        identity_statements, CASE WHEN unread.columns IS NOT NULL THEN full_statements END, enum_domains) AS statements,
    CASE WHEN countable AND numerics IS NOT NULL AND row_number() OVER (ORDER BY countable DESC, heap) <= 200
        THEN format($f$(SELECT concat_ws('; ', %%L, %%s) FROM (SELECT %%s FROM %%s LIMIT 10000) s)$f$, noted, samples, numerics, quoted)
        ELSE '' END AS sampling,
    json_build_object('columns', coalesce(names, '[]'), 'unsupported', coalesce(unsupported, '[]'), 'key', coalesce(key.columns, ARRAY[]::text[]),
        'identities', coalesce(identities, '[]'), 'unique', (SELECT coalesce(json_agg(columns), '[]') FROM key_index
            WHERE indrelid = target.oid), 'no_keys', coalesce(no_keys, '[]'), 'quoted', quoted, 'is_deferrable', deferrable_key.statement IS NOT NULL)::text AS facts
FROM target JOIN whole ON whole.root = target.oid LEFT JOIN key ON key.root = target.oid
LEFT JOIN columns ON columns.root = target.oid LEFT JOIN deferrable_key ON deferrable_key.root = target.oid
LEFT JOIN unread ON unread.root = target.oid
JOIN pg_roles o ON o.oid = relowner, me,
LATERAL (SELECT coalesce(has_schema_privilege(connector, schema_oid, 'USAGE'), false) AS visible,
    coalesce(has_table_privilege(connector, target.oid, 'SELECT'), false) AS readable,
    relrowsecurity AND NOT coalesce(sees_all, false) AND (relforcerowsecurity
        OR reader <> me.rolname AND NOT coalesce(pg_has_role(connector, relowner, 'USAGE'), false)) AS hidden,
    has_schema_privilege(schema_oid, 'USAGE') AND has_table_privilege(target.oid, 'SELECT') AND foreign_partitions IS NULL AS countable,
    EXISTS (SELECT FROM key_index WHERE indrelid = target.oid AND indisprimary) AS has_primary_key,
    coalesce(columns.attention, '') AS noted) may
ORDER BY nspname, relname

-- name: postgres_other_kinds
-- What names are that are no tables to capture. Parameter: the names.
SELECT n.nspname || '.' || t.relname AS name, CASE
    WHEN n.nspname LIKE 'pg\_%%' OR n.nspname = 'information_schema' THEN 'a table of the system'
    WHEN t.relispartition THEN format('a partition of %%s, whose capture has its rows', r.oid::regclass)
    WHEN t.relpersistence = 't' THEN 'a temporary table'
    WHEN t.relkind IN ('r', 'p') THEN 'a table of an extension'
    ELSE CASE t.relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table'
        ELSE 'no table' END END || ': changes of it cannot be captured' AS reason
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace LEFT JOIN pg_class r ON r.oid = pg_partition_root(t.oid)
WHERE n.nspname || '.' || t.relname = ANY(%s)

-- name: mariadb_table_id
-- The names of a table of information_schema, whose own collation would take names that differ in case for one.
convert(table_schema USING utf8mb4) COLLATE utf8mb4_bin AS table_schema, convert(table_name USING utf8mb4) COLLATE utf8mb4_bin AS table_name

-- name: mariadb_shows_periods
-- MariaDB 11.4 and later show which keys are WITHOUT OVERLAPS.
SELECT table_name FROM information_schema.tables
WHERE table_schema = 'information_schema' AND table_name = 'KEY_PERIOD_USAGE'

-- name: mariadb_overlaps
SELECT {mariadb_table_id} FROM information_schema.key_period_usage

-- name: mariadb_no_overlaps
SELECT '' AS table_schema, '' AS table_name

-- name: mariadb_server
-- Parameters: the database.
WITH me AS (
    SELECT concat('`', replace(left(u, char_length(u) - char_length(h) - 1), '`', '``'), '`@`', replace(h, '`', '``'), '`') AS user,
        concat('''', left(u, char_length(u) - char_length(h) - 1), '''@''', h, '''') AS grantee
    FROM (SELECT current_user() AS u, substring_index(current_user(), '@', -1) AS h) c),
asked AS (SELECT %s AS name)
SELECT 'version' AS item, version() AS value, '' AS problem, '' AS statements
UNION ALL
SELECT 'TLS', if(variable_value = '', 'none: the connection is not encrypted', variable_value), '', ''
FROM {schema}.session_status WHERE variable_name = 'Ssl_version'
UNION ALL
SELECT 'log_bin', if(@@global.log_bin, 'ON', 'OFF'), if(@@global.log_bin, '', 'the server writes no binary log'),
    if(@@global.log_bin, '', '-- in the section [mysqld] of the server''s configuration: log_bin = mysql-bin; then restart the server')
UNION ALL
SELECT name, value, if(value = wanted, '', concat('must be ', wanted)), if(value = wanted, '',
    if(@@basedir LIKE '/rdsdbbin%%', concat('-- in the parameter group of Amazon RDS: ', name, ' = ', wanted),
        concat('SET GLOBAL ', name, ' = ''', wanted, '''; -- for new sessions; also in the server''s configuration, for the next start')))
FROM (SELECT 'binlog_format' AS name, @@global.binlog_format AS value, 'ROW' AS wanted
    UNION ALL SELECT 'binlog_row_image', @@global.binlog_row_image, 'FULL'
    -- binlog_legacy_event_pos (MariaDB 11.4 and later): without it all changes of a transaction have the same position.
    -- log_bin_compress: Debezium's reader leaves out compressed changes.
    UNION ALL SELECT lower(variable_name), variable_value, if(lower(variable_name) = 'log_bin_compress', 'OFF', 'ON')
        FROM {schema}.global_variables WHERE variable_name IN ('binlog_legacy_event_pos', 'log_bin_compress')) s
UNION ALL
SELECT 'init_connect', init, 'it changes what sessions write into the log',
    'SET GLOBAL init_connect = ''''; -- also in the server''s configuration, for the next start'
FROM (SELECT @@global.init_connect AS init) i WHERE init LIKE '%%binlog%%' OR init LIKE '%%sql_log_bin%%'
UNION ALL
SELECT 'max_statement_time', variable_value, 'it interrupts the connector, which reads the log in one statement',
    'SET GLOBAL max_statement_time = 0; -- also in the server''s configuration, for the next start'
FROM {schema}.global_variables WHERE variable_name = 'max_statement_time' AND variable_value > 0
UNION ALL
SELECT 'log_slave_updates', 'a replica', 'changes of its primary are not in its log',
    '-- set the host of the source to the primary; or log_slave_updates = ON in the server''s configuration, and restart it'
FROM {schema}.global_variables v JOIN {schema}.global_status s ON s.variable_name = 'Slave_running' AND s.variable_value = 'ON'
WHERE v.variable_name = 'log_slave_updates' AND v.variable_value = 'OFF'
UNION ALL
SELECT 'server_id', @@global.server_id, if(@@global.server_id > 0, '', 'must not be 0'),
    if(@@global.server_id > 0, '', 'SET GLOBAL server_id = 1; -- also in the server''s configuration, for the next start')
UNION ALL
SELECT 'binlog_expire_logs_seconds', if(variable_value = 0, 'no limit', concat(variable_value,
    ': a connector that was stopped for longer needs a new snapshot')), '', ''
FROM {schema}.global_variables WHERE variable_name = 'binlog_expire_logs_seconds'
UNION ALL
SELECT concat('privilege ', needed), if(granted, 'granted', 'not granted'),
    if(granted, '', 'the user lacks it'), if(granted, '', concat('GRANT ', needed, ' ON *.* TO ', user, ';'))
FROM (SELECT needed, user, EXISTS (SELECT 1 FROM information_schema.user_privileges p
        WHERE p.grantee = me.grantee AND privilege_type IN (needed, alias)) AS granted
    FROM me, (SELECT 'REPLICATION SLAVE' AS needed, '' AS alias UNION ALL SELECT 'REPLICATION CLIENT', 'BINLOG MONITOR'
        UNION ALL SELECT 'RELOAD', '') n) g
UNION ALL
-- No obstacle: all changes arrive without it. MySQL has the numbers of the storage in other tables, which are not read.
SELECT 'privilege PROCESS', if(granted, 'granted', 'not granted: a TRUNCATE, or a table that is created anew, is not noticed'), '',
    if(granted, '', concat('GRANT PROCESS ON *.* TO ', user, ';'))
FROM (SELECT user, EXISTS (SELECT 1 FROM information_schema.user_privileges p
        WHERE p.grantee = me.grantee AND privilege_type = 'PROCESS') AS granted FROM me) g WHERE version() LIKE '%%MariaDB%%'
UNION ALL
SELECT concat('privilege ', needed, ' on ', name), if(granted, 'granted', 'not granted'),
    if(granted, '', 'the user lacks it'),
    if(granted, '', concat('GRANT ', needed, ' ON `',
        replace(replace(replace(replace(name, '\', '\\'), '`', '``'), '_', '\_'), '%%', '\%%'), '`.* TO ', user, ';'))
FROM (SELECT needed, user, name, EXISTS (SELECT 1 FROM information_schema.user_privileges p
        WHERE p.grantee = me.grantee AND privilege_type = needed) OR EXISTS (
        SELECT 1 FROM information_schema.schema_privileges p
        WHERE p.grantee = me.grantee AND privilege_type = needed AND name LIKE p.table_schema ESCAPE '\') AS granted
    FROM me, asked, (SELECT 'SELECT' AS needed UNION ALL SELECT 'LOCK TABLES'
        -- foreign keys are visible with a privilege besides SELECT
        UNION ALL SELECT 'REFERENCES') n WHERE name <> '') g
UNION ALL
SELECT concat('database ', name), 'not found', 'the server has no such database',
    '-- correct the database of the source in the params file'
FROM asked, me WHERE name <> '' AND EXISTS (SELECT 1 FROM information_schema.user_privileges p
    WHERE p.grantee = me.grantee AND privilege_type IN ('SELECT', 'SHOW DATABASES'))
AND NOT EXISTS (SELECT 1 FROM information_schema.schemata WHERE schema_name = name)

-- name: mariadb_tables
-- One row for each table. Parameters: the database (twice), whether all of its tables are checked, the names of tables,
-- and the columns that are not captured.
-- The types and character sets that were proved to arrive, from snapshot and log (tests/stack/test_own_mariadb.py).
-- Debezium reads the definition of an excluded column, too, and stops at one that is unknown to it. In a label of an
-- enum it writes a comma as \,.
WITH columns AS (
    SELECT {mariadb_table_id}, column_name, ordinal_position, data_type, column_type, character_set_name,
        column_type LIKE '%%COMPRESSED%%' OR data_type IN ('inet4', 'inet6')
            OR coalesce(column_default, '') LIKE '%%nextval(%%' AS is_unknown,
        column_type REGEXP concat('^((tiny|small|medium|big)?int([(][0-9]+[)])?|(float|double)([(][0-9]+,[0-9]+[)])?',
            '|decimal[(]([1-9]|[12][0-9]|3[0-8]),[0-9]+[)])( unsigned)?( zerofill)?$',
            '|^bit[(][0-9]+[)]$|^year([(]4[)])?$|^date$|^(datetime|timestamp|time)([(][0-6][)])?$|^json$',
            '|^(var)?(char|binary)[(][0-9]+[)]$|^(tiny|medium|long)?(text|blob)$',
            '|^(enum|set)[(](''([^'',\\]|'''')*'',?)+[)]$') AS is_known_type,
        concat('ALTER TABLE `', replace(table_schema, '`', '``'), '`.`', replace(table_name, '`', '``'), '` MODIFY `',
            replace(column_name, '`', '``'), '` ') AS alteration,
        concat(if(is_nullable = 'NO', ' NOT NULL', ''), if(coalesce(column_default, 'NULL') = 'NULL', '',
            concat(' DEFAULT ', column_default)), '; -- writes the table anew') AS attributes
    FROM information_schema.columns),
overlaps AS (SELECT DISTINCT table_schema, table_name, true AS is_found FROM ({overlaps}) o),
addresses AS (SELECT DISTINCT table_schema, table_name, true AS is_found FROM columns WHERE data_type IN ('inet4', 'inet6')),
target AS (
    SELECT t.*, concat('`', replace(table_schema, '`', '``'), '`.`', replace(table_name, '`', '``'), '`') AS quoted, o.is_found AS overlaps
    FROM (SELECT {mariadb_table_id}, table_type, engine, table_rows, data_length, index_length FROM information_schema.tables
        WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND (%s = '' OR table_schema = %s)
        AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')) t
    LEFT JOIN overlaps o USING (table_schema, table_name) LEFT JOIN addresses a USING (table_schema, table_name)
    -- A snapshot reads the definitions of all tables (SHOW CREATE TABLE), and stops at these. Of COMPRESSED columns and
    -- defaults with nextval it reads them.
    WHERE %s OR concat(table_schema, '.', table_name) IN %s OR table_type = 'SYSTEM VERSIONED' OR o.is_found OR a.is_found),
unique_key AS (
    SELECT {mariadb_table_id}, index_name = 'PRIMARY' AS is_primary,
        group_concat(column_name ORDER BY seq_in_index SEPARATOR ', ') AS names,
        group_concat('`', replace(column_name, '`', '``'), '`' ORDER BY seq_in_index SEPARATOR ', ') AS quoted_names,
        concat('[', group_concat(json_quote(column_name) ORDER BY seq_in_index), ']') AS json_names
    FROM information_schema.statistics WHERE non_unique = 0 GROUP BY 1, 2, index_name
    HAVING sum(nullable = 'YES' OR sub_part IS NOT NULL OR column_name IS NULL) = 0),
prefix_key AS (
    SELECT {mariadb_table_id}, concat('[', group_concat(CASE WHEN sub_part IS NOT NULL THEN json_quote(column_name) END
            ORDER BY seq_in_index), ']') AS names,
        group_concat('`', replace(column_name, '`', '``'), '`' ORDER BY seq_in_index SEPARATOR ', ') AS quoted_names
    FROM information_schema.statistics WHERE index_name = 'PRIMARY' GROUP BY 1, 2 HAVING count(sub_part) > 0),
-- InnoDB keeps the hash of the columns in a hidden column, which is in the log, and which Debezium does not know
hashed AS (
    SELECT {mariadb_table_id}, group_concat(DISTINCT index_name SEPARATOR ', ') AS names,
        group_concat(DISTINCT concat('-- shorten its columns (VARCHAR, together 3072 bytes: a prefix would not make them unique); or: ALTER TABLE `',
            replace(table_schema, '`', '``'), '`.`', replace(table_name, '`', '``'), '` DROP INDEX `', replace(index_name, '`', '``'), '`;')
            SEPARATOR X'1e') AS statements
    FROM information_schema.statistics WHERE non_unique = 0 AND index_type = 'HASH' GROUP BY 1, 2),
best_key AS (
    SELECT table_schema, table_name, max(is_primary) AS is_primary,
        coalesce(max(CASE WHEN is_primary THEN names END), '') AS names, min(quoted_names) AS quoted_names,
        max(CASE WHEN is_primary THEN json_names END) AS key_names, group_concat(json_names) AS sets
    FROM unique_key GROUP BY table_schema, table_name),
partition_count AS (
    SELECT {mariadb_table_id}, count(DISTINCT partition_name) AS number FROM information_schema.partitions
    WHERE partition_name IS NOT NULL GROUP BY 1, 2),
unreadable AS (
    SELECT table_schema, table_name, group_concat(concat(column_name, ' ',
            if(is_known_type AND NOT is_unknown, character_set_name, column_type))
        ORDER BY ordinal_position SEPARATOR ', ') AS names,
        group_concat(CASE WHEN data_type IN ('uuid', 'inet4', 'inet6') THEN concat(alteration, CASE data_type
                WHEN 'uuid' THEN 'char(36)' WHEN 'inet4' THEN 'varchar(15)' ELSE 'varchar(39)' END, attributes)
            WHEN is_unknown THEN concat('-- change the definition of the column: ', alteration, '...')
            WHEN is_known_type THEN concat(alteration, column_type, ' CHARACTER SET utf8mb4', attributes)
            ELSE concat('-- leave the column out (--exclude ', column_name, '), or change its type') END
            ORDER BY ordinal_position SEPARATOR X'1e') AS statements
    FROM columns WHERE is_unknown OR column_name NOT IN %s AND NOT (is_known_type
        AND coalesce(character_set_name, 'utf8mb4') IN ('utf8mb4', 'utf8mb3', 'utf8', 'latin1', 'ucs2', 'utf16', 'utf16le',
            'utf32', 'sjis', 'euckr', 'koi8r', 'cp1251', 'gbk'))
    GROUP BY table_schema, table_name),
facts AS (
    SELECT {mariadb_table_id}, concat('[', group_concat(json_quote(column_name) ORDER BY ordinal_position), ']') AS names,
        concat('[', coalesce(group_concat(CASE WHEN data_type NOT IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint', 'char',
            'varchar', 'binary', 'varbinary', 'decimal', 'double', 'date', 'datetime', 'timestamp', 'time', 'year', 'enum', 'set')
            THEN json_quote(column_name) END), ''), ']') AS no_keys
    FROM information_schema.columns GROUP BY 1, 2),
cascading AS (  -- InnoDB changes the rows of the child, and these changes are not in the log
    SELECT convert(constraint_schema USING utf8mb4) COLLATE utf8mb4_bin AS table_schema,
        convert(table_name USING utf8mb4) COLLATE utf8mb4_bin AS table_name, group_concat(constraint_name SEPARATOR ', ') AS names,
        group_concat(concat('ALTER TABLE `', replace(constraint_schema, '`', '``'), '`.`', replace(table_name, '`', '``'),
            '` DROP FOREIGN KEY `', replace(constraint_name, '`', '``'), '`; -- and let triggers or applications change its rows')
            SEPARATOR X'1e') AS statements
    FROM information_schema.referential_constraints
    WHERE delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL')
    GROUP BY 1, 2)
SELECT concat('table ', t.table_schema, '.', t.table_name) AS item, t.table_schema AS `schema`, t.table_name AS `table`,
    coalesce(concat('partitioned, ', p.number, ' partitions'), 'table') AS kind, coalesce(table_rows, 0) AS `rows`,
    coalesce(data_length + index_length, 0) AS bytes, coalesce(k.names, '') AS `key`, 'full row' AS identity,
    '' AS attention,
    concat_ws('; ', concat(i.names, ': Debezium cannot read this type'),
        if(engine = 'InnoDB', NULL, concat('engine ', engine, ', not InnoDB')),
        if(table_type = 'BASE TABLE', NULL, 'system-versioned: Debezium cannot read its definition'),
        if(overlaps IS NULL, NULL, 'key WITHOUT OVERLAPS: Debezium cannot read its definition'),
        if(engine = 'InnoDB', concat('unique index ', h.names, ' has a hidden column (USING HASH), at which Debezium stops'), NULL),
        concat('changes by the foreign key ', c.names, ' are not in the log')) AS problem,
    concat_ws(char(30 USING utf8mb4), CASE WHEN k.is_primary THEN NULL
        WHEN x.quoted_names IS NOT NULL AND k.quoted_names IS NULL THEN
            concat('-- with types that need no prefix, such as VARCHAR: ALTER TABLE ', quoted, ' DROP PRIMARY KEY, ADD PRIMARY KEY (',
                x.quoted_names, ');')
        WHEN x.quoted_names IS NOT NULL THEN
            concat('ALTER TABLE ', quoted, ' DROP PRIMARY KEY, ADD PRIMARY KEY (', k.quoted_names, ');')
        WHEN k.quoted_names IS NOT NULL THEN concat('ALTER TABLE ', quoted, ' ADD PRIMARY KEY (', k.quoted_names, ');')
    ELSE concat('ALTER TABLE ', quoted, ' ADD COLUMN row_id bigint NOT NULL INVISIBLE AUTO_INCREMENT PRIMARY KEY; ',
        '-- writes the table anew; SELECT * does not show the column') END, i.statements,
        if(engine = 'InnoDB', NULL, concat('ALTER TABLE ', quoted, ' ENGINE = InnoDB; -- writes the table anew')),
        if(table_type = 'BASE TABLE', NULL,
            concat('ALTER TABLE ', quoted, ' DROP SYSTEM VERSIONING; -- removes the history of the rows')),
        if(overlaps IS NULL, NULL, '-- give the table a key without a period, or move it to a server that is not captured'),
        if(engine = 'InnoDB', h.statements, NULL),
        c.statements) AS statements,
    concat('{"unsupported": [], "quoted": ', json_quote(quoted), ', "columns": ', f.names, ', "no_keys": ', f.no_keys, ', "key": ',
        coalesce(k.key_names, '[]'), ', "prefixes": ', coalesce(x.names, '[]'), ', "unique": [', coalesce(k.sets, ''), ']}') AS facts
FROM target t JOIN facts f USING (table_schema, table_name) LEFT JOIN best_key k USING (table_schema, table_name)
LEFT JOIN prefix_key x USING (table_schema, table_name) LEFT JOIN hashed h USING (table_schema, table_name)
LEFT JOIN partition_count p USING (table_schema, table_name)
LEFT JOIN cascading c USING (table_schema, table_name) LEFT JOIN unreadable i USING (table_schema, table_name)
ORDER BY t.table_schema, t.table_name
