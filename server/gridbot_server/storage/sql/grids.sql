-- name: tell
INSERT INTO told_grids (constructor, ads, good_until)
VALUES (%(constructor)s, %(ads)s, now() + make_interval(secs => %(seconds)s))
ON CONFLICT (constructor) DO UPDATE
   SET ads = excluded.ads, told_at = now(), good_until = excluded.good_until

-- name: drop_old
-- Each constructor repeats what it tells while it runs.
DELETE FROM told_grids WHERE good_until < now()

-- name: grids
SELECT g.key AS name, t.constructor, g.value AS ad, t.told_at,
       extract(epoch FROM t.good_until - t.told_at)::int AS good_seconds
  FROM told_grids t CROSS JOIN LATERAL jsonb_each(t.ads) AS g
 WHERE t.good_until > now()
 ORDER BY g.key, t.constructor LIMIT %(most)s
