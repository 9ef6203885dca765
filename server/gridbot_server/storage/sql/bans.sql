-- name: bans
-- Of tokens that nobody may speak with: those of clients whose host is banned.
SELECT client.hash, host.banned_why FROM client JOIN host ON host.id = client.host
 WHERE client.hash = ANY(%(hashes)s) AND host.banned_at IS NOT NULL

-- name: ban
-- The reason of one that is banned already may change; since when it is stays.
UPDATE host SET banned_at = coalesce(banned_at, now()), banned_why = %(why)s
 WHERE id = %(host)s RETURNING id, banned_at, banned_why

-- name: lock_clients_of_host
-- Before they are revoked, and in the order of dispatch: a request that is being served ends first.
SELECT id FROM client WHERE host = %(host)s ORDER BY id FOR NO KEY UPDATE

-- name: revoke_clients_of_host
UPDATE client SET revoked_at = host.banned_at FROM host
 WHERE host.id = %(host)s AND client.host = host.id AND client.revoked_at IS NULL

-- name: unban
-- Clients that were revoked at another time stay so.
WITH banned AS (
    SELECT id, banned_at FROM host WHERE id = %(host)s FOR NO KEY UPDATE
), back AS (
    UPDATE client SET revoked_at = NULL FROM banned
     WHERE client.host = banned.id AND client.revoked_at = banned.banned_at
)
UPDATE host SET banned_at = NULL, banned_why = '' FROM banned
 WHERE host.id = banned.id RETURNING host.id

-- name: lock_clients_of_key
SELECT id FROM client WHERE joined_with = %(token)s ORDER BY id FOR NO KEY UPDATE

-- name: clients_of_key
-- Those that go on working.
SELECT count(*) FROM client
 WHERE joined_with = %(token)s AND revoked_at IS NULL
   AND (expires_at IS NULL OR expires_at > now())

-- name: revoke_clients_of_key
-- Also those whose host is banned: without the ban they would be back.
UPDATE client SET revoked_at = now() WHERE joined_with = %(token)s
