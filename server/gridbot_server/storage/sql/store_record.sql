-- What database and file store know of each other: see storage/store_record.py.

-- name: mark
SELECT store.value AS identity, epoch.value::bigint AS epoch, revision.value::bigint AS revision
  FROM setting AS revision, setting AS store, setting AS epoch
 WHERE revision.name = 'store_revision' AND store.name = 'store' AND epoch.name = 'epoch'
   FOR UPDATE OF revision

-- name: set_revision
UPDATE setting SET value = %(revision)s::bigint::text WHERE name = 'store_revision'

-- name: new_store
UPDATE setting SET value = gen_random_uuid()::text WHERE name = 'store'

-- name: new_database
UPDATE setting SET value = gen_random_uuid()::text WHERE name = 'database'

-- name: new_epoch
-- The number above, and chance below: 40 bits of it.
UPDATE setting
   SET value = (((greatest(value::bigint, %(known)s::bigint) >> 40) + 1 << 40)
                | %(chance)s::bigint)::text
 WHERE name = 'epoch'

-- name: numbers
-- The last number that each sequence gave.
SELECT quote_ident(schemaname) || '.' || quote_ident(sequencename), coalesce(last_value, 0)
  FROM pg_sequences WHERE schemaname NOT IN ('pg_catalog', 'information_schema')

-- name: sequences
SELECT quote_ident(schemaname) || '.' || quote_ident(sequencename) AS name, data_type::text AS type
  FROM pg_sequences WHERE schemaname NOT IN ('pg_catalog', 'information_schema')

-- name: jump
SELECT setval(%(sequence)s::regclass,
              greatest(nextval(%(sequence)s::regclass), %(known)s::bigint) + %(jump)s::bigint)

-- name: revocations
SELECT encode(subject, 'hex') AS subject, encode(signer, 'hex') AS signer,
       encode(signature, 'hex') AS signature
  FROM revocation ORDER BY subject, signer

-- name: keys
SELECT encode(hash, 'hex') FROM token
 WHERE revoked_at IS NOT NULL AND (expires_at IS NULL OR expires_at > now()) ORDER BY 1

-- name: clients
SELECT encode(hash, 'hex') FROM client
 WHERE revoked_at IS NOT NULL AND (expires_at IS NULL OR expires_at > now())
 UNION SELECT name FROM withdrawn WHERE kind = 'client' ORDER BY 1

-- name: hosts
SELECT identity, banned_why AS why FROM host WHERE banned_at IS NOT NULL
 UNION
SELECT name, why FROM withdrawn WHERE kind = 'host'
   AND NOT EXISTS (SELECT FROM host WHERE identity = name) ORDER BY 1

-- name: revoke_again
INSERT INTO revocation (subject, signer, signature)
SELECT decode(subject, 'hex'), decode(signer, 'hex'), decode(signature, 'hex')
  FROM json_to_recordset(%(revocations)s) AS x (subject text, signer text, signature text)
    ON CONFLICT DO NOTHING
RETURNING subject

-- name: revoke_keys_again
UPDATE token SET revoked_at = now()
 WHERE hash = ANY (SELECT decode(x, 'hex') FROM unnest(%(keys)s::text[]) AS x)
   AND revoked_at IS NULL

-- name: revoke_clients_again
UPDATE client SET revoked_at = now()
 WHERE hash = ANY (SELECT decode(x, 'hex') FROM unnest(%(clients)s::text[]) AS x)
   AND revoked_at IS NULL

-- name: ban_again
WITH banned AS (
    UPDATE host SET banned_at = now(), banned_why = x.why
      FROM json_to_recordset(%(hosts)s) AS x (identity text, why text)
     WHERE host.identity = x.identity AND host.banned_at IS NULL
    RETURNING host.id
)
UPDATE client SET revoked_at = now() FROM banned
 WHERE client.host = banned.id AND client.revoked_at IS NULL

-- name: remember
-- Those that this database does not know may come yet.
INSERT INTO withdrawn (kind, name, why)
SELECT 'client', x, '' FROM unnest(%(clients)s::text[]) AS x
 UNION ALL
SELECT 'host', x.identity, x.why FROM json_to_recordset(%(hosts)s) AS x (identity text, why text)
    ON CONFLICT DO NOTHING
