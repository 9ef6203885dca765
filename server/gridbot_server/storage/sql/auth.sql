-- name: key
-- Expired invitations, too: machines that have joined with them may join again.
SELECT token.id, token.owner, owner.name AS owner_name, token.scope, token.grid,
       token.serves, coalesce(token.expires_at <= now(), false) AS is_expired,
       token.uses IS NOT NULL AS is_invitation, false AS by_password
  FROM token JOIN owner ON owner.id = token.owner
 WHERE token.hash = %(hash)s AND token.revoked_at IS NULL
   AND (token.expires_at IS NULL OR token.expires_at > now() OR token.uses IS NOT NULL)

-- name: client
SELECT client.id, client.host, client.owner, owner.name AS owner_name
  FROM client JOIN owner ON owner.id = client.owner
 WHERE client.hash = %(hash)s AND client.revoked_at IS NULL
   AND (client.expires_at IS NULL OR client.expires_at > now())
