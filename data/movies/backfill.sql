-- The countries of the movies that were there before the column; they are ours, as the rows are.
UPDATE movies SET COUNTRY = CASE
    WHEN movie_id IN (101, 108, 111) THEN 'France'
    WHEN movie_id IN (103, 104, 107) THEN 'Germany'
    WHEN movie_id IN (106, 109) THEN 'Soviet Union'
    ELSE 'United States' END
 WHERE COUNTRY = '';
