-- The tables of a MariaDB or MySQL database, for a picture (draw.entities), as postgres_tables.sql has them.
-- (Line breaks in quotes: with the sql_mode NO_BACKSLASH_ESCAPES, which our sessions have, \n is none.)
WITH RECURSIVE tables_here AS (
    SELECT table_name AS name FROM information_schema.tables WHERE table_schema = database() AND table_type = 'BASE TABLE'
), columns_here AS (
    SELECT c.table_name AS name, c.ordinal_position AS position, c.column_name AS column_name,
           c.column_key = 'PRI' AS is_key, max(k.referenced_table_name) IS NOT NULL AS is_reference,
           count(*) OVER () < 50 AS is_small
    FROM tables_here t JOIN information_schema.columns c ON c.table_schema = database() AND c.table_name = t.name
    LEFT JOIN information_schema.key_column_usage k
        ON k.table_schema = c.table_schema AND k.table_name = c.table_name AND k.column_name = c.column_name
    GROUP BY c.table_name, c.ordinal_position, c.column_name, c.column_key
), contents AS (
    SELECT name, count(*) AS columns_count, sum(is_key OR is_reference OR is_small) AS listed,
           group_concat(CASE WHEN is_key OR is_reference OR is_small THEN concat(
               CASE WHEN is_key THEN '◆' ELSE '' END, CASE WHEN is_reference THEN '→' WHEN is_key THEN '' ELSE '·' END,
               ' ', column_name) END ORDER BY position SEPARATOR '
') AS texts
    FROM columns_here GROUP BY name
), links AS (
    SELECT DISTINCT table_name AS name, referenced_table_name AS other FROM information_schema.referential_constraints
    WHERE constraint_schema = database() AND unique_constraint_schema = database() AND table_name <> referenced_table_name
), paths AS (
    SELECT name, cast(concat('/', name, '/') AS char(400)) AS path, 0 AS lane FROM tables_here UNION ALL
    SELECT l.other, concat(p.path, l.other, '/'), p.lane + 1 FROM paths p JOIN links l ON l.name = p.name
    WHERE p.lane < 4 AND instr(p.path, concat('/', l.other, '/')) = 0
), longest AS (
    SELECT name, path, lane, row_number() OVER (PARTITION BY name ORDER BY lane DESC, path) AS choice FROM paths
), places AS (
    SELECT name, path, CASE WHEN EXISTS (SELECT 1 FROM links) THEN lane
                            ELSE (row_number() OVER (ORDER BY path) - 1) % 5 END AS lane FROM longest WHERE choice = 1
)
SELECT c.name AS `table`, p.lane AS lane,
       sum(c.listed + (c.columns_count > c.listed) + 2.3) OVER (PARTITION BY p.lane ORDER BY p.path) + 0E0 AS y,
       concat_ws('
', c.name, c.texts,
                 CASE WHEN c.columns_count > c.listed THEN concat('… ', c.columns_count - c.listed, ' more') END) AS content,
       coalesce((SELECT group_concat(l.other ORDER BY l.other SEPARATOR '
') FROM links l WHERE l.name = c.name), '') AS refers_to
FROM contents c JOIN places p ON p.name = c.name ORDER BY p.lane, p.path
