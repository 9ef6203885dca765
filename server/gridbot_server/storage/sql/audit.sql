-- name: note
INSERT INTO audit (owner, key, action, target, given)
VALUES (%(owner)s, %(key)s, %(action)s, %(target)s, %(given)s::jsonb)

-- name: entries
-- The latest first; `before` pages on.
SELECT a.id, a.at, o.name AS owner, a.key, a.action, a.target, a.given
  FROM audit a JOIN owner o ON o.id = a.owner
 WHERE (%(mine)s::int IS NULL OR a.owner = %(mine)s) AND (%(before)s::bigint IS NULL OR a.id < %(before)s)
   AND (%(target)s::text IS NULL OR a.target = %(target)s OR starts_with(a.target, %(target)s || '/'))
 ORDER BY a.id DESC LIMIT %(limit)s

-- name: purge
DELETE FROM audit WHERE id = ANY (ARRAY(
    SELECT id FROM audit WHERE at < now() - %(age)s LIMIT %(limit)s))
