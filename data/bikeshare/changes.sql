-- Kinds of changes of the bike-share database, for pagila.random_changes. Each statement changes one row at most.
--
-- %(row)s selects the row: the last one up to a number. So new rows, which are the last ones, are often selected, and the
-- same number selects the same row again. %(n)s is another number below a million, %(text)s a text. Rows that other rows
-- refer to stay.

INSERT INTO trips (started_at, bike_id, rider_id, from_station, updated_at)
SELECT timestamptz '2025-12-20 00:00+00' + make_interval(secs => %(n)s * 2.5), 1 + mod(%(n)s, 480), 1 + mod(%(row)s, 1700),
       station_id, now()
  FROM stations ORDER BY md5(station_id::text || %(text)s::text) LIMIT 1;
-- a trip ends
UPDATE trips SET ended_at = started_at + make_interval(secs => mod(%(n)s, 5000)), duration = make_interval(secs => mod(%(n)s, 5000)),
                 to_station = from_station, distance_km = mod(%(n)s, 900) / 100.0, fare = trim_scale(mod(%(n)s, 90000) / 10000.0),
                 updated_at = now()
 WHERE trip_id = (SELECT max(trip_id) FROM trips WHERE trip_id BETWEEN 1 AND 1 + mod(%(row)s, 17300));
UPDATE trips SET rating = nullif(mod(%(n)s, 6), 0), updated_at = now()
 WHERE trip_id = (SELECT max(trip_id) FROM trips WHERE trip_id BETWEEN 1 AND 1 + mod(%(row)s, 17300));
-- a wrong clock is corrected: most of these trips move to another partition, and all get another key
UPDATE trips SET started_at = started_at + make_interval(hours => mod(%(n)s, 2400) - 1200),
                 ended_at = ended_at + make_interval(hours => mod(%(n)s, 2400) - 1200), updated_at = now()
 WHERE trip_id = (SELECT max(trip_id) FROM trips WHERE trip_id BETWEEN 1 AND 1 + mod(%(row)s, 17300));
DELETE FROM trips
 WHERE trip_id = (SELECT max(trip_id) FROM trips WHERE trip_id BETWEEN 1 AND 1 + mod(%(row)s, 17300));

INSERT INTO bikes (model, state, is_electric, price, battery, odometer_km, bought)
VALUES (%(text)s::text, 'in service', true, trim_scale(mod(%(n)s, 99999) / 100.0), 100, 0, date '2026-01-01' + mod(%(n)s, 90));
UPDATE bikes SET state = (ARRAY['in service', 'charging', 'in repair', 'retired'])[1 + mod(%(n)s, 4)]::bike_state,
                 battery = trim_scale(nullif(mod(%(n)s, 100000), 0) / 1000.0), updated_at = now()
 WHERE bike_id = (SELECT max(bike_id) FROM bikes WHERE bike_id BETWEEN 1 AND 1 + mod(%(row)s, 560));
UPDATE bikes SET odometer_km = odometer_km + mod(%(n)s, 10000) / 8.0, updated_at = now(),
                 station_id = (SELECT station_id FROM stations ORDER BY md5(station_id::text || %(text)s::text) LIMIT 1)
 WHERE bike_id = (SELECT max(bike_id) FROM bikes WHERE bike_id BETWEEN 1 AND 1 + mod(%(row)s, 560));
DELETE FROM bikes
 WHERE bike_id = (SELECT max(bike_id) FROM bikes WHERE bike_id BETWEEN 481 AND 481 + mod(%(row)s, 60)
                  AND NOT EXISTS (SELECT FROM trips WHERE trips.bike_id = bikes.bike_id));

INSERT INTO riders (name, email, plan, joined_at, birth_date, balance, preferences)
VALUES (%(text)s::text, lower(replace(%(text)s::text, ' ', '.')) || '@example.org', 'day', timestamptz '2026-01-01 00:00+00' + make_interval(secs => %(n)s),
        date '1950-01-01' + mod(%(n)s, 20000), 0, '{"language": "de"}');
UPDATE riders SET balance = trim_scale(balance - mod(%(n)s, 10000) / 1000.0), updated_at = now()
 WHERE rider_id = (SELECT max(rider_id) FROM riders WHERE rider_id BETWEEN 1 AND 1 + mod(%(row)s, 1780));
UPDATE riders SET plan = 'year', renewed_every = '1 year', preferences = preferences || jsonb_build_object('since', %(n)s::integer), updated_at = now()
 WHERE rider_id = (SELECT max(rider_id) FROM riders WHERE rider_id BETWEEN 1 AND 1 + mod(%(row)s, 1780));
UPDATE riders SET photo_hash = CASE WHEN photo_hash IS NULL THEN sha256(convert_to(%(text)s::text, 'UTF8')) END, name = upper(name), updated_at = now()
 WHERE rider_id = (SELECT max(rider_id) FROM riders WHERE rider_id BETWEEN 1 AND 1 + mod(%(row)s, 1780));
DELETE FROM riders
 WHERE rider_id = (SELECT max(rider_id) FROM riders WHERE rider_id BETWEEN 1701 AND 1701 + mod(%(row)s, 80)
                   AND NOT EXISTS (SELECT FROM trips WHERE trips.rider_id = riders.rider_id));

INSERT INTO stations (station_id, name, location, docks, opened, opens_at, attributes, tags)
VALUES (md5(%(text)s::text)::uuid, %(text)s::text, point(mod(%(n)s, 400) / 100.0, mod(%(row)s, 300) / 100.0), 8, '2026-01-01', '06:00',
        '{"kind": "home", "quarter": "Neustadt", "popularity": 1}', ARRAY['new'])
ON CONFLICT DO NOTHING;
UPDATE stations SET docks = 8 + mod(%(n)s, 40), tags = array_append(tags[1:3], %(text)s::text), updated_at = now()
 WHERE station_id = (SELECT station_id FROM stations ORDER BY md5(station_id::text || mod(%(row)s, 90)) LIMIT 1);
UPDATE stations SET opens_at = time '05:00' + make_interval(secs => mod(%(n)s, 9000)), updated_at = now(),
                    attributes = attributes || jsonb_build_object('inspected', %(text)s::text)
 WHERE station_id = (SELECT station_id FROM stations ORDER BY md5(station_id::text || mod(%(row)s, 90)) LIMIT 1);
DELETE FROM stations
 WHERE station_id = (SELECT station_id FROM stations WHERE opened >= '2026-01-01'
                     AND NOT EXISTS (SELECT FROM trips WHERE stations.station_id IN (from_station, to_station))
                     AND NOT EXISTS (SELECT FROM bikes WHERE bikes.station_id = stations.station_id)
                     ORDER BY md5(station_id::text || mod(%(row)s, 90)) LIMIT 1);

-- weather has no key: without REPLICA IDENTITY FULL, PostgreSQL rejects the last two once the table is published
INSERT INTO weather VALUES (timestamptz '2026-01-01 06:00+00' + make_interval(secs => %(n)s), 'Łąki', mod(%(n)s, 300) / 10.0 - 5, 0, false);
UPDATE weather SET temperature = mod(%(n)s, 300) / 10.0 - 5
 WHERE ctid = (SELECT ctid FROM weather ORDER BY md5(extract(epoch FROM measured_at)::text || mod(%(row)s, 90)) LIMIT 1);
DELETE FROM weather
 WHERE ctid = (SELECT ctid FROM weather ORDER BY md5(extract(epoch FROM measured_at)::text || mod(%(row)s, 90)) LIMIT 1);
