SELECT * FROM (
  SELECT *, "__lsn" AS valid_from, lead("__lsn") OVER (PARTITION BY {keys} ORDER BY "__lsn") AS valid_to
    FROM {table})
 WHERE "__deleted" = 'false'{valid}
