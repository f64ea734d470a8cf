-- The rows of the bike-share service: 60 stations, 480 bikes, 1,700 riders, 1,460 weather readings and 17,000 trips of
-- the year 2025, 20,700 rows in all. Each load creates the same rows in any time zone: random numbers are hashes of a
-- text, and every time has its offset. The city's local time is UTC.
--
-- The trips show two rush hours on working days (from homes to work, and back), one long peak on weekends, a summer
-- season, fewer trips in rain, and a few quarters with most of the trips.

-- a number from 0 to n - 1 that depends on the text only
CREATE FUNCTION hash_below(seed text, n bigint) RETURNS bigint IMMUTABLE LANGUAGE sql
AS 'SELECT (''x'' || left(md5(seed), 8))::bit(32)::bigint % n';

INSERT INTO stations
SELECT
    md5('station ' || n)::uuid,
    quarter || ' ' || place,
    point(x + (hash_below('east ' || n, 120) - 60) / 100.0, y + (hash_below('north ' || n, 120) - 60) / 100.0),
    12 + 2 * hash_below('docks ' || n, 12),
    date '2023-04-01' + hash_below('opened ' || n, 600)::integer,
    CASE WHEN kind IN ('campus', 'work') THEN time '05:30' + make_interval(mins => 15 * (n % 4)) END,
    CASE WHEN kind IN ('campus', 'work') THEN time '23:15:30' END,
    jsonb_build_object(
        'quarter', quarter,
        'kind', kind,
        'popularity', centrality * attraction,
        'surface', jsonb_build_object('covered', n % 3 = 0, 'material', CASE n % 2 WHEN 0 THEN 'asphalt' END)
    ),
    CASE n % 5
        WHEN 0 THEN ARRAY[kind, 'step-free', 'Fähre, "line 2"']
        WHEN 1 THEN ARRAY[kind]
        WHEN 2 THEN ARRAY[kind, 'step-free']
        WHEN 3 THEN '{}'
    END,
    timestamptz '2024-12-01 08:00+00' + make_interval(mins => n)
FROM (
    VALUES
    (0, 'Altstadt', 0, 0.3, 9), (1, 'Brückenkopf', 0.9, -0.4, 7), (2, 'Cañada', 2.4, 1.9, 3),
    (3, 'Dünenhof', -3.1, 2.6, 2), (4, 'Eßling', -2.2, -1.8, 2), (5, 'Fjordside', 1.2, 2.8, 3),
    (6, 'Güterbahnhof', -0.8, -0.9, 5), (7, 'Hafen', 1.7, 0.6, 6), (8, 'Île Verte', -1.4, 1.5, 4),
    (9, 'Jasminviertel', 3.6, -1.2, 2), (10, 'Königsfeld', 0.4, -2.7, 4), (11, 'Łąki', -3.8, 0.1, 1)
) AS quarters (q, quarter, x, y, centrality)
CROSS JOIN (
    VALUES (1, 'Square', 'home', 3), (2, 'Station', 'transit', 5), (3, 'School', 'campus', 2), (4, 'Market', 'work', 4),
    (5, 'Park', 'leisure', 2)
) AS places (p, place, kind, attraction)
CROSS JOIN LATERAL (VALUES (5 * q + p)) AS number (n);

INSERT INTO bikes
SELECT
    n,
    CASE WHEN is_electric THEN 'Blitz E' || 2 + n % 2 ELSE (ARRAY['Möwe', 'Möwe XL', 'Cargo'])[1 + n % 3] END,
    state,
    is_electric,
    -- numbers of different scales: 1290, 649.5, 649.95
    trim_scale((CASE WHEN is_electric THEN 1290 ELSE 649 END) + hash_below('price ' || n, 40) * 0.05),
    CASE WHEN is_electric AND state <> 'retired' THEN trim_scale(hash_below('battery ' || n, 100001) / 1000.0) END,
    hash_below('odometer ' || n, 900000) / 100.0,
    date '2023-04-01' + hash_below('bought ' || n, 600)::integer,
    CASE
        WHEN state IN ('in service', 'charging') AND n % 10 > 0
            THEN md5('station ' || 1 + hash_below('parked ' || n, 60))::uuid
    END,
    timestamptz '2025-12-31 20:00+00' + make_interval(secs => n * 7.25)
FROM generate_series(1, 480) AS n
CROSS JOIN LATERAL (VALUES (n % 3 = 0, hash_below('state ' || n, 100))) AS drawn (is_electric, s)
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN s < 5 THEN 'retired' WHEN s < 12 THEN 'in repair' WHEN s < 35 AND is_electric THEN 'charging' ELSE 'in service'
        END::bike_state AS state
) AS states;

-- 900 riders joined before 2025, 800 in the course of that year
INSERT INTO riders
SELECT
    n,
    first_names[1 + hash_below('first ' || n, 24)] || ' ' || last_names[1 + hash_below('last ' || n, 30)],
    'rider' || n || '@example.org',
    plan,
    CASE plan WHEN 'month' THEN interval '1 month' WHEN 'year' THEN interval '1 year' END,
    CASE WHEN n <= 900
        THEN timestamptz '2023-04-01 06:00+00' + make_interval(mins => n * 1020 + hash_below('joined ' || n, 500)::integer)
        ELSE timestamptz '2025-01-01 06:00+00' + make_interval(mins => (n - 901) * 655 + hash_below('joined ' || n, 500)::integer)
    END,
    CASE WHEN n % 11 > 0 THEN date '1945-01-01' + hash_below('born ' || n, 23000)::integer END,
    CASE WHEN n % 4 > 0 THEN sha256(('photo ' || n)::bytea) END,
    trim_scale((hash_below('balance ' || n, 90000) - 15000) / 1000.0),
    CASE
        WHEN n % 3 > 0
            THEN jsonb_build_object('language', (ARRAY['de', 'en', 'is', 'pl'])[1 + n % 4], 'newsletter', n % 2 = 0, 'nickname',
                CASE n % 7 WHEN 0 THEN 'Der "Schnelle" ' || n END)
    END,
    timestamptz '2025-12-31 21:00+00' + make_interval(secs => n)
FROM generate_series(1, 1700) AS n
CROSS JOIN (
    VALUES (
        ARRAY['Anna', 'Björn', 'Chloé', 'Dağhan', 'Éva', 'Fionn', 'GÜL', 'Håkon', 'Inês', 'Jürgen', 'Kübra', 'Łukasz',
            'Mónica', 'Nuño', 'Óscar', 'Petra', 'Quirin', 'Róisín', 'Søren', 'Tomáš', 'Ursula', 'Väinö', 'Wiebke', 'Zoë'],
        ARRAY['Åström', 'Bauer', 'Çelik', 'D''Angelo', 'Ekström', 'Fröhlich', 'García', 'Høst', 'Iversen', 'JANSSEN', 'Kovač',
            'Lefèvre', 'McÉWEN', 'Núñez', 'Öztürk', 'Péter', 'Quiñones', 'Rossi', 'Šimić', 'Tóth', 'Ünal', 'van der Berg',
            'Weiß', 'Xhaka', 'Yıldız', 'Żak', 'Ångman', 'O''Brien', 'Müller-Lüdenscheidt', 'Þórsson']
    )
) AS names (first_names, last_names)
CROSS JOIN LATERAL (
    SELECT (ARRAY['day', 'month', 'month', 'year', 'year', 'year'])[1 + hash_below('plan ' || n, 6)]::rider_plan AS plan
) AS plans;

-- every six hours; the temperature of the month, warmer by day, and colder in rain
INSERT INTO weather
SELECT
    timestamptz '2025-01-01 06:00+00' + make_interval(hours => 6 * n),
    'Hafen',
    temperature,
    rain / 10.0,
    rain > 0 AND temperature < 1
FROM generate_series(0, 1459) AS n
-- a rainy spell lasts two days
CROSS JOIN LATERAL (VALUES (hash_below('spell ' || n / 8, 100), hash_below('shower ' || n, 100))) AS drawn (spell, shower)
CROSS JOIN LATERAL (
    SELECT CASE WHEN spell < 28 AND shower < 75 THEN 4 + shower ELSE greatest(0, shower - 94) END AS rain
) AS rains
CROSS JOIN LATERAL (
    SELECT
        (
            (ARRAY[2, 5, 35, 80, 130, 170, 195, 190, 150, 95, 45, 15])[1 + n / 4 * 12 / 365] + (ARRAY[-35, 25, 30, -10])[1 + n % 4]
            - least(rain, 30) + hash_below('warmth ' || n, 60) - 30
        ) / 10.0 AS temperature
) AS temperatures;

INSERT INTO trips
WITH days AS (
    SELECT
        day,
        extract(isodow FROM day) > 5 AS is_weekend,
        -- the season, fewer trips on weekends, and still fewer in rain
        sum(
            (ARRAY[30, 34, 52, 80, 108, 128, 140, 136, 110, 78, 46, 32])[extract(month FROM day)::integer]
            * (ARRAY[100, 104, 106, 104, 100, 84, 68])[extract(isodow FROM day)::integer]
            * (CASE WHEN rain < 4 THEN 100 WHEN rain < 12 THEN 72 ELSE 45 END + hash_below('day ' || d, 20))
        ) OVER (ORDER BY day)::bigint AS up_to
    FROM generate_series(0, 364) AS d
    CROSS JOIN LATERAL (VALUES (date '2025-01-01' + d)) AS dates (day)
    CROSS JOIN LATERAL (
        SELECT sum(rain_mm) AS rain FROM weather
        WHERE measured_at > day::timestamp AT TIME ZONE 'UTC' AND measured_at <= (day + 1)::timestamp AT TIME ZONE 'UTC'
    ) AS readings
),

-- slot 0: another time; 1: the morning of a working day; 2: its evening
weights AS (
    SELECT
        slot,
        is_start,
        array_agg(station_id ORDER BY station_id) AS stations,
        array_agg(up_to ORDER BY station_id) AS up_to,
        max(up_to) AS total
    FROM (
        SELECT
            slot,
            is_start,
            station_id,
            sum(
                (attributes -> 'popularity')::bigint
                * CASE
                    WHEN kind = 'home' AND slot = CASE WHEN is_start THEN 1 ELSE 2 END THEN 5
                    WHEN kind IN ('work', 'campus') AND slot = CASE WHEN is_start THEN 2 ELSE 1 END THEN 5
                    WHEN kind = 'leisure' AND slot = 0 THEN 4
                    WHEN kind = 'transit' THEN 2
                    ELSE 1
                END
            ) OVER (PARTITION BY slot, is_start ORDER BY station_id)::bigint AS up_to
        FROM stations
        CROSS JOIN LATERAL (VALUES (attributes ->> 'kind')) AS kinds (kind)
        CROSS JOIN generate_series(0, 2) AS slot
        CROSS JOIN (VALUES (true), (false)) AS ends (is_start)
    ) AS running
    GROUP BY slot, is_start
),

starts AS (
    SELECT
        i,
        day - date '2025-01-01' AS day_number,
        is_weekend,
        hour,
        CASE WHEN is_weekend THEN 0 WHEN hour BETWEEN 6 AND 9 THEN 1 WHEN hour BETWEEN 15 AND 18 THEN 2 ELSE 0 END AS slot,
        day::timestamp AT TIME ZONE 'UTC'
        + make_interval(hours => hour, secs => hash_below('second ' || i, 3600000) / 1000.0) AS started_at
    FROM generate_series(1, 17000) AS i
    CROSS JOIN (SELECT array_agg(up_to ORDER BY day) AS up_to, max(up_to) AS total FROM days) AS all_days
    CROSS JOIN LATERAL (
        SELECT date '2025-01-01' + width_bucket(hash_below('trip ' || i, 2147483647) % total, up_to) AS drawn_day
    ) AS drawn
    INNER JOIN days ON day = drawn_day
    CROSS JOIN LATERAL (
        -- of 1,000 trips of a working day, or of a weekend: how many began before each hour ended
        SELECT
            width_bucket(
                hash_below('hour ' || i, 1000),
                CASE
                    WHEN is_weekend
                        THEN ARRAY[22, 37, 46, 50, 53, 58, 66, 80, 108, 152, 215, 292, 376, 464, 554, 640, 718, 784, 840,
                            885, 920, 948, 972]
                    ELSE ARRAY[5, 8, 10, 12, 16, 31, 82, 196, 322, 388, 424, 462, 510, 556, 600, 656, 744, 860, 922, 952,
                        970, 983, 993]
                END
            ) AS hour
    ) AS hours
),

rides AS (
    SELECT
        s.*,
        1 + hash_below('bike ' || i, 480)::integer AS bike_id,
        -- of the riders who had joined, the early ones ride most
        1 + hash_below('rider ' || i, joined) * hash_below('habit ' || i, joined) / joined AS rider_id,
        departure.stations[1 + width_bucket(hash_below('from ' || i, departure.total), departure.up_to)] AS from_station,
        arrival.stations[1 + width_bucket(hash_below('to ' || i, arrival.total), arrival.up_to)] AS to_station
    FROM starts AS s
    INNER JOIN weights AS departure ON departure.slot = s.slot AND departure.is_start
    INNER JOIN weights AS arrival ON arrival.slot = s.slot AND NOT arrival.is_start
    CROSS JOIN LATERAL (VALUES (898 + 800 * day_number / 365)) AS riders (joined)
),

measured AS (
    SELECT
        r.*,
        plan,
        -- a ride back to its start is a tour
        CASE
            WHEN from_station = to_station THEN round((3 + hash_below('tour ' || i, 90) / 10.0), 2)
            ELSE round((1.25 * (a.location <-> b.location))::numeric + hash_below('detour ' || i, 40) / 100.0, 2)
        END AS km,
        CASE WHEN is_electric THEN 17 ELSE 13 END + hash_below('speed ' || i, 40) / 10.0 AS km_per_hour,
        -- a break on the way, in seconds; one trip in 900 is a bike forgotten until the next day
        CASE
            WHEN hash_below('forgotten ' || i, 900) = 0 THEN 90000
            WHEN is_weekend AND i % 3 = 0 THEN 60 * hash_below('break ' || i, 50)
            ELSE hash_below('break ' || i, 240)
        END AS break_s
    FROM rides AS r
    INNER JOIN stations AS a ON a.station_id = from_station
    INNER JOIN stations AS b ON b.station_id = to_station
    INNER JOIN bikes USING (bike_id)
    INNER JOIN riders USING (rider_id)
)

SELECT
    row_number() OVER (ORDER BY started_at, i),
    started_at,
    started_at + make_interval(secs => seconds),
    started_at + make_interval(secs => seconds) - started_at,
    bike_id,
    rider_id,
    from_station,
    to_station,
    km,
    trim_scale(
        CASE plan
            WHEN 'day' THEN 1 + 0.15 * (seconds / 60)
            WHEN 'month' THEN 0.5 + 0.0725 * greatest(0, seconds / 60 - 15)
            ELSE 0.05 * greatest(0, seconds / 60 - 30)
        END
    ),
    CASE WHEN hash_below('rated ' || i, 100) < 28 THEN (ARRAY[1, 2, 3, 4, 4, 4, 5, 5, 5, 5])[1 + hash_below('stars ' || i, 10)] END,
    started_at + make_interval(secs => seconds + 30)
FROM measured
CROSS JOIN LATERAL (VALUES (90 + (3600 * km / km_per_hour)::integer + break_s)) AS durations (seconds);

DROP FUNCTION hash_below;

SELECT setval('bikes_bike_id_seq', 480);
SELECT setval('riders_rider_id_seq', 1700);
SELECT setval('trips_trip_id_seq', 17000);

-- so that the server's estimates are right at once
ANALYZE stations, bikes, riders, trips, weather;
