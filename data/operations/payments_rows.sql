-- 200 payments for each hundredth of the scale. A number always gives the same payment.
INSERT INTO payments
SELECT id, mixed % 997, (ARRAY['north', 'east', 'south', 'west'])[mixed % 4 + 1], mixed % 5000 + mixed % 100 / 100.0,
    (ARRAY['open', 'paid', 'refunded'])[mixed % 3 + 1], CASE WHEN mixed % 3 > 0 THEN 'invoice ' || mixed END,
    make_timestamptz(2026, 1, 1 + mixed % 28, mixed % 24, mixed % 60, mixed % 59 + mixed / 1000000.0, 'UTC')
FROM (SELECT id, (id * 7919 % 100003)::integer AS mixed
    FROM generate_series(1::bigint, 200 * current_setting('workbench.repetitions')::integer) AS id) AS payment
ORDER BY id;
