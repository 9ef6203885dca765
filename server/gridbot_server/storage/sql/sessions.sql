-- name: session
-- The key for which a cookie stands; an invitation lets nobody in.
SELECT token.id, token.owner, owner.name AS owner_name, token.scope, token.grid, token.serves,
       false AS is_expired, false AS is_invitation, s.by_password
  FROM console_session s JOIN token ON token.id = s.token JOIN owner ON owner.id = token.owner
 WHERE s.hash = %(hash)s AND s.expires_at > now()
   AND token.revoked_at IS NULL AND token.uses IS NULL
   AND (token.expires_at IS NULL OR token.expires_at > now())

-- name: still_good
-- Which of these cookies stand for a key, as `session` tells of one.
SELECT s.hash FROM console_session s JOIN token ON token.id = s.token
 WHERE s.hash = ANY(%(hashes)s) AND s.expires_at > now()
   AND token.revoked_at IS NULL AND token.uses IS NULL
   AND (token.expires_at IS NULL OR token.expires_at > now())

-- name: begin
WITH old AS (
    DELETE FROM console_session WHERE expires_at < now()
)
INSERT INTO console_session (hash, token, by_password, expires_at)
VALUES (%(hash)s, %(token)s, %(by_password)s, now() + %(lifetime)s::interval)

-- name: end
DELETE FROM console_session WHERE hash = %(hash)s

-- name: add_link
WITH old AS (
    DELETE FROM console_link WHERE expires_at < now()
)
INSERT INTO console_link (hash, token, expires_at)
VALUES (%(hash)s, %(token)s, now() + %(lifetime)s::interval)

-- name: use_link
-- Only one of those who come with a link gets its key.
DELETE FROM console_link USING token
 WHERE console_link.hash = %(hash)s AND console_link.expires_at > now()
   AND token.id = console_link.token AND token.revoked_at IS NULL
   AND (token.expires_at IS NULL OR token.expires_at > now())
RETURNING token.id

-- name: linked_key
-- The key for which an account at a provider stands.
SELECT token.id FROM linked_login l JOIN token ON token.id = l.token
 WHERE l.issuer = %(issuer)s AND l.subject = %(subject)s
   AND token.revoked_at IS NULL AND token.uses IS NULL
   AND (token.expires_at IS NULL OR token.expires_at > now())

-- name: links
SELECT l.issuer, l.subject, l.token AS key, l.linked_at
  FROM linked_login l JOIN token ON token.id = l.token
 WHERE token.owner = %(owner)s AND token.revoked_at IS NULL ORDER BY l.linked_at LIMIT 100

-- name: link
-- Who links it has shown both the key and the account.
INSERT INTO linked_login (issuer, subject, token) VALUES (%(issuer)s, %(subject)s, %(key)s)
ON CONFLICT (issuer, subject) DO UPDATE SET token = excluded.token, linked_at = now()

-- name: unlink
DELETE FROM linked_login USING token
 WHERE token.id = linked_login.token AND token.owner = %(owner)s
   AND linked_login.issuer = %(issuer)s AND linked_login.subject = %(subject)s
RETURNING token.id
