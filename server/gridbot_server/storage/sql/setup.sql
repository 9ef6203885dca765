-- name: project_key
SELECT value FROM setting WHERE name = 'project_key'

-- name: set_project_key
WITH first AS (
    INSERT INTO project_key (key) VALUES (decode(%(key)s, 'hex')) ON CONFLICT DO NOTHING
)
INSERT INTO setting VALUES ('project_key', %(key)s) ON CONFLICT (name) DO NOTHING

-- name: key_is_known
SELECT 1 FROM token WHERE hash = %(hash)s AND revoked_at IS NULL

-- name: ensure_operator
INSERT INTO owner (name, operator) VALUES (%(name)s, true)
ON CONFLICT (name) DO UPDATE SET operator = true

-- name: add_operator_key
INSERT INTO token (hash, owner, scope, label)
SELECT %(hash)s, id, 'operator', 'made at server start' FROM owner WHERE name = %(name)s

-- name: add_signing_key
-- The owner's first needs nobody's word; a further one must be introduced, which takes that key.
INSERT INTO signing_key (key, owner, label)
SELECT %(key)s, id, 'made at server start' FROM owner
 WHERE name = %(name)s AND NOT EXISTS (SELECT FROM signing_key k WHERE k.owner = owner.id)
ON CONFLICT DO NOTHING

-- name: set_boinc_names
INSERT INTO setting VALUES ('boinc_names', %(secret)s) ON CONFLICT (name) DO NOTHING

-- name: boinc_chain
SELECT value FROM setting WHERE name = 'boinc_chain'

-- name: set_boinc_chain
INSERT INTO setting VALUES ('boinc_chain', %(chain)s) ON CONFLICT (name) DO NOTHING

-- name: has_schema
SELECT to_regclass('migration')::text

-- name: migrations
SELECT version FROM migration

-- name: client_versions
SELECT coalesce(h.ad ->> 'ClientVersion', 'unknown') AS version, count(*)::int AS clients
  FROM client c JOIN host h ON h.id = c.host
 WHERE c.seen_at > now() - interval '1 day' AND c.revoked_at IS NULL
 GROUP BY 1 ORDER BY 1
