-- name: owners
SELECT name, id FROM owner WHERE name = ANY(%(names)s)

-- name: host
-- The machine by its identity: its statistics survive the clients on it.
INSERT INTO host (identity, owner, ad) VALUES (%(identity)s, %(owner)s, %(ad)s)
ON CONFLICT (identity) DO UPDATE SET ad = EXCLUDED.ad RETURNING id

-- name: add_client
INSERT INTO client (hash, host, owner, accepts, grid)
VALUES (%(hash)s, %(host)s, %(owner)s, %(accepts)s, %(grid)s) RETURNING id

-- name: accepted
SELECT coalesce(array_agg(owner.name), '{}')
  FROM client JOIN owner ON owner.id = ANY (client.accepts)
 WHERE client.id = %(client)s

-- name: change_accepts
UPDATE client SET accepts = %(accepts)s WHERE id = %(client)s

-- name: change_host
UPDATE host SET ad = %(ad)s WHERE id = %(host)s

-- name: project
SELECT (SELECT value FROM setting WHERE name = 'project_key'),
       (SELECT value::bigint FROM setting WHERE name = 'epoch')
