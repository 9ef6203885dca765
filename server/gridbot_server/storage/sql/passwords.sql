-- name: lock
-- One at a time: how many ask is bounded, and two who use links of one account would wait for each other.
SELECT pg_advisory_xact_lock(hashtext('password_link'))

-- name: ask
-- Whether there is such an account is looked up later: nobody learns it from what this takes.
-- Each address by itself, as NAME+ANYTHING must not use up what NAME may ask for.
WITH past AS (
    DELETE FROM password_link WHERE asked_at < now() - interval '1 day'
), recent AS (
    SELECT email FROM password_link WHERE asked_at >= now() - interval '1 day'
)
INSERT INTO password_link (email, person, mailbox)
SELECT %(email)s, %(person)s, %(mailbox)s
 WHERE (SELECT count(*) FROM recent WHERE email = %(email)s) < %(most)s
   AND (SELECT count(*) FROM recent) < %(most_of_all)s

-- name: due
-- What fails is tried again less and less often: the relay may have taken it all the same.
UPDATE password_link SET due_at = now() + greatest(interval '1 minute', now() - asked_at)
 WHERE id IN (SELECT id FROM password_link WHERE mailbox IS NOT NULL AND due_at <= now()
               ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id, mailbox, asked_at

-- name: promise
-- Before the link is mailed: it is good when it arrives.  No row where there is no account, where an
-- operator revoked its key, after an hour of tries, where another link was used meanwhile, or where
-- so many were mailed to this person within a day.
UPDATE password_link p SET hash = %(hash)s, expires_at = now() + %(lifetime)s::interval
  FROM boinc_account b JOIN token t ON t.owner = b.owner
 WHERE p.id = %(id)s AND p.asked_at > now() - interval '1 hour' AND b.email = p.email
   AND p.mailbox IS NOT NULL
   AND t.hash = coalesce(b.password_key,
       (SELECT hash FROM token WHERE owner = b.owner ORDER BY id LIMIT 1))
   AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
   AND (SELECT count(*) FROM password_link o
         WHERE o.person = p.person AND o.id <> p.id AND o.expires_at IS NOT NULL
           AND o.asked_at >= now() - interval '1 day') < %(most)s
RETURNING p.id

-- name: settle
-- It was mailed, or will not be.
UPDATE password_link SET mailbox = NULL WHERE id = %(id)s

-- name: is_good
SELECT 1 FROM password_link WHERE hash = %(hash)s AND expires_at > now()

-- name: use
-- Only one of those who come with a link uses it; none once an operator has revoked the account's key.
UPDATE password_link p SET hash = NULL
  FROM boinc_account b JOIN token t ON t.owner = b.owner
 WHERE p.hash = %(hash)s AND p.email = %(email)s AND p.expires_at > now() AND b.email = p.email
   AND t.hash = coalesce(b.password_key,
       (SELECT hash FROM token WHERE owner = b.owner ORDER BY id LIMIT 1))
   AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
RETURNING p.id

-- name: use_up
-- The other links of the account.
UPDATE password_link SET hash = NULL, mailbox = NULL WHERE email = %(email)s

-- name: replace
-- Whoever knew the old password changes the account no more: keys and sessions that it gave end.
-- Keys that attach stay, also those made of these keys: machines hold them.
WITH key AS (
    INSERT INTO token (hash, owner, scope, label)
    SELECT %(key)s, b.owner, 'join', 'of a new password' FROM boinc_account b
     WHERE b.email = %(email)s
    ON CONFLICT (hash) DO NOTHING RETURNING id, owner
), changed AS (
    UPDATE boinc_account b SET password_key = %(key)s FROM key WHERE b.owner = key.owner
), revoked AS (
    UPDATE token t SET revoked_at = now() FROM key
     WHERE t.owner = key.owner AND t.scope = 'account' AND t.revoked_at IS NULL
), ended AS (
    DELETE FROM console_session s USING token t, key
     WHERE t.id = s.token AND t.owner = key.owner AND s.by_password
)
SELECT id FROM key
