-- The rows of the files, which are temporary tables here, become those of the tables. Each repetition has higher numbers.
ALTER TABLE "Artworks.csv" ADD COLUMN IF NOT EXISTS cataloged_at text;  -- only the bundled file has it

DO $$
DECLARE
    missing text;
BEGIN
    SELECT string_agg(format('%s %s', name, key), ', ') INTO missing
    FROM (VALUES ('Artists.csv: ConstituentID', 1), ('Artists.csv: ConstituentID', 299),
        ('Artists.csv: ConstituentID', 441), ('Artists.csv: ConstituentID', 4609), ('Artworks.csv: ObjectID', 128447)
    ) AS followed (name, key)
    WHERE key NOT IN (SELECT "ConstituentID" FROM "Artists.csv" WHERE name LIKE 'Artists%'
        UNION ALL SELECT "ObjectID" FROM "Artworks.csv" WHERE name LIKE 'Artworks%');
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'rows that the walkthrough follows are missing: %', missing USING HINT = 'use the complete files';
    END IF;
END $$;

INSERT INTO artists
SELECT "ConstituentID" + 5000 * n, "DisplayName", "Nationality", "Gender",
    nullif("BeginDate", 0), nullif("EndDate", 0)  -- 0: unknown
FROM "Artists.csv", generate_series(0, current_setting('workbench.repetitions')::integer - 1) AS n
ORDER BY 1;

INSERT INTO artworks
SELECT "ObjectID" + 130000 * n, split_part("ConstituentID", ',', 1)::integer + 5000 * n,  -- the first artist
    "Title", "Artist", "Date", "Dimensions", "DateAcquired"::date, "Classification", "Department", "Height (cm)",
    cataloged_at::timestamp
FROM "Artworks.csv", generate_series(0, current_setting('workbench.repetitions')::integer - 1) AS n
ORDER BY 1;
