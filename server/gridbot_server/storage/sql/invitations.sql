-- name: add
INSERT INTO token (hash, owner, scope, label, expires_at, uses)
VALUES (%(hash)s, %(owner)s, 'join', %(label)s, now() + %(lifetime)s, %(uses)s)
RETURNING id, expires_at

-- name: lock
-- Machines that join at once take turns.
SELECT uses FROM token WHERE id = %(key)s AND uses IS NOT NULL FOR NO KEY UPDATE

-- name: machines
SELECT count(DISTINCT host) AS joined, coalesce(bool_or(host = %(host)s), false) AS is_among
  FROM client WHERE joined_with = %(key)s
