-- name: tell
INSERT INTO told_grids (constructor, ads, drained, heard, good_until)
VALUES (%(constructor)s, %(ads)s, %(drained)s, %(heard)s,
        now() + make_interval(secs => %(seconds)s))
ON CONFLICT (constructor) DO UPDATE
   SET ads = excluded.ads, drained = excluded.drained, heard = excluded.heard, told_at = now(),
       good_until = excluded.good_until

-- name: drop_old
-- Each constructor repeats what it tells while it runs.
DELETE FROM told_grids WHERE good_until < now()

-- name: drop_old_orders
-- A constructor that has been away for so long begins with what is wanted then.
DELETE FROM grid_order WHERE ordered_at < now() - interval '30 days'

-- name: order
-- An order to a grid that its constructor tells of.
INSERT INTO grid_order (constructor, grid, number, drained)
SELECT constructor, %(grid)s, nextval('grid_order_number'), %(drained)s
  FROM told_grids
 WHERE constructor = %(constructor)s AND drained ? %(grid)s AND good_until > now()
ON CONFLICT (constructor, grid) DO UPDATE
   SET number = excluded.number, drained = excluded.drained, ordered_at = now()
RETURNING number

-- name: orders
SELECT number, grid, drained FROM grid_order
 WHERE constructor = %(constructor)s AND number > %(after)s ORDER BY number

-- name: drains
-- Whether grids are drained, and what was ordered of which the constructor has not heard.
SELECT g.key AS grid, t.constructor, g.value AS drained,
       o.drained AS ordered, extract(epoch FROM now() - o.ordered_at)::float8 AS ordered_seconds
  FROM told_grids t CROSS JOIN LATERAL jsonb_each_text(t.drained) AS g
  LEFT JOIN grid_order o ON o.constructor = t.constructor AND o.grid = g.key AND o.number > t.heard
 WHERE t.good_until > now()
 ORDER BY g.key, t.constructor LIMIT %(most)s

-- name: grids
SELECT g.key AS name, t.constructor, g.value AS ad, t.told_at,
       extract(epoch FROM t.good_until - t.told_at)::int AS good_seconds
  FROM told_grids t CROSS JOIN LATERAL jsonb_each(t.ads) AS g
 WHERE t.good_until > now()
 ORDER BY g.key, t.constructor LIMIT %(most)s
