-- The tables of a PostgreSQL database, for a picture (draw.entities). One row for each table:
--   lane, y    its place: to the right of the tables that refer to it; side by side if no table refers to another one
--   content    its name; its columns of the primary key (◆) and of foreign keys (→), or all columns of a small database
--   refers_to  the other tables that its foreign keys name
-- (pg_catalog, because information_schema shows only keys of tables that one owns, and names of constraints are not unique.)
WITH RECURSIVE tables AS (
    SELECT t.oid, t.oid::regclass::text AS name FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE t.relkind IN ('r', 'p') AND NOT t.relispartition AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
), columns AS (
    SELECT t.oid, a.attnum, a.attname AS name,
           coalesce(bool_or(c.contype = 'p'), false) AS is_key, coalesce(bool_or(c.contype = 'f'), false) AS is_reference,
           count(c.oid) > 0 OR count(*) OVER () < 50 AS is_listed
    FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_constraint c ON c.conrelid = t.oid AND a.attnum = ANY(c.conkey) AND c.contype IN ('p', 'f')
    GROUP BY t.oid, a.attnum, a.attname
), contents AS (
    SELECT oid, count(*) FILTER (WHERE NOT is_listed) AS others, array_agg(
        concat(CASE WHEN is_key THEN '◆' END, CASE WHEN is_reference THEN '→' WHEN NOT is_key THEN '·' END, ' ', name)
        ORDER BY attnum) FILTER (WHERE is_listed) AS lines
    FROM columns GROUP BY oid
), links AS (
    SELECT DISTINCT t.oid, other.oid AS other, other.name FROM tables t
    JOIN pg_constraint c ON c.conrelid = t.oid AND c.contype = 'f' JOIN tables other ON other.oid = c.confrelid AND other.oid <> t.oid
), paths (oid, path) AS (
    SELECT oid, ARRAY[name] FROM tables UNION ALL
    SELECT l.other, p.path || l.name FROM paths p JOIN links l USING (oid) WHERE l.name <> ALL(p.path) AND cardinality(p.path) < 5
), longest AS (
    SELECT DISTINCT ON (oid) oid, path FROM paths ORDER BY oid, cardinality(path) DESC, path
), places AS (
    SELECT oid, path, CASE WHEN EXISTS (SELECT FROM links) THEN cardinality(path) - 1
                           ELSE (row_number() OVER (ORDER BY path) - 1) % 5 END AS lane FROM longest
)
SELECT t.name AS "table", lane,
       sum(coalesce(cardinality(lines), 0) + (others > 0)::int + 2.3) OVER (PARTITION BY lane ORDER BY path)::float8 AS y,
       concat_ws(E'\n', t.name, array_to_string(lines, E'\n'), '… ' || nullif(others, 0) || ' more') AS content,
       coalesce((SELECT string_agg(l.name, E'\n' ORDER BY l.name) FROM links l WHERE l.oid = t.oid), '') AS refers_to
FROM tables t JOIN contents USING (oid) JOIN places USING (oid) ORDER BY lane, path
