SELECT {columns} FROM (
  SELECT *, max_by({large}, CASE WHEN {large} IS DISTINCT FROM '__debezium_unavailable_value' THEN "__lsn" END)
            OVER (PARTITION BY {keys}) AS known,
         row_number() OVER (PARTITION BY {keys} ORDER BY "__lsn" DESC) AS newest
    FROM {table})
 WHERE newest = 1 AND "__deleted" = 'false'
