-- name: project
SELECT (SELECT key FROM project_key WHERE introduced_by IS NULL) AS first,
       (SELECT decode(value, 'hex') FROM setting WHERE name = 'project_key') AS key

-- name: keys
SELECT key, label, introduced_by, created_at, revoked_at IS NOT NULL AS is_revoked
  FROM signing_key WHERE owner = %(owner)s ORDER BY created_at, key

-- name: lock_owner
SELECT FROM owner WHERE id = %(owner)s FOR NO KEY UPDATE

-- name: owners_of_key
SELECT owner FROM signing_key WHERE key = %(key)s ORDER BY owner

-- name: add_key
INSERT INTO signing_key (key, owner, label, introduced_by, signature)
VALUES (%(key)s, %(owner)s, %(label)s, %(introduced_by)s, %(signature)s)

-- name: touch_bots
-- Web processes render a BOT's keys once per version of it.
UPDATE bot SET policy_version = policy_version + 1
 WHERE owner = %(owner)s AND state = 'running' AND owner_signature IS NOT NULL

-- name: lock_project
SELECT FROM setting WHERE name = 'project_key' FOR UPDATE

-- name: add_project_key
WITH made AS (
    INSERT INTO project_key (key, introduced_by, signature)
    VALUES (%(key)s, %(old)s, %(signature)s)
)
UPDATE setting SET value = encode(%(key)s, 'hex') WHERE name = 'project_key'

-- name: unsign_by_project
-- What an owner or BOINC's key signed runs on under that signature.  `signed_with` stays.
UPDATE bot SET signature = NULL,
       waits_for_signature = owner_signature IS NULL AND boinc IS NULL,
       policy_version = policy_version + 1
 WHERE state IN ('open', 'running') AND version = 2 AND signature IS NOT NULL

-- name: unsigned
-- Unfinished BOTs that an earlier key of the project signed.
SELECT id FROM bot
 WHERE state IN ('open', 'running') AND signature IS NULL AND signed_with IS NOT NULL ORDER BY id

-- name: revocable
-- Whether a key of these owners may revoke a subject: one of their keys, or a BOT of theirs.
SELECT EXISTS (SELECT FROM signing_key WHERE owner = ANY(%(owners)s) AND sha256(key) = %(subject)s)
    OR EXISTS (SELECT FROM bot WHERE owner = ANY(%(owners)s) AND deleted_at IS NULL
                  AND sha256(convert_to(manifest, 'UTF8')) = %(subject)s)
    OR EXISTS (SELECT FROM bot_manifest m JOIN bot ON bot.id = m.bot
                WHERE owner = ANY(%(owners)s) AND deleted_at IS NULL
                  AND sha256(convert_to(m.manifest, 'UTF8')) = %(subject)s) AS is_own

-- name: add_revocation
INSERT INTO revocation (subject, signer, signature)
VALUES (%(subject)s, %(signer)s, %(signature)s) ON CONFLICT DO NOTHING

-- name: revoke_key
UPDATE signing_key SET revoked_at = now() WHERE sha256(key) = %(subject)s AND revoked_at IS NULL
RETURNING key

-- name: revoke_bots
-- Nobody runs them until they are signed again, which a revoked signature never is.  Strangers may
-- have run them: without a derivation, no BOT that is only for trusted hosts gets their answers.
UPDATE bot SET signature = NULL, signed_with = NULL, owner_signature = NULL, derivation = NULL,
       waits_for_signature = boinc IS NULL, policy_version = policy_version + 1
 WHERE state IN ('open', 'running') AND version = 2
   AND (sha256(convert_to(manifest, 'UTF8')) = %(subject)s
        OR sha256(decode(manifest::json->>'owner_key', 'hex')) = %(subject)s
        OR sha256(signed_with) = %(subject)s)
RETURNING id

-- name: revocations
SELECT subject, signer, signature FROM revocation
 ORDER BY signer IN (SELECT key FROM project_key) DESC, made_at DESC, subject LIMIT 10000

-- name: count_revocations
SELECT count(*) FROM revocation r
 WHERE EXISTS (SELECT FROM signing_key k WHERE k.owner = ANY(%(owners)s) AND k.key = r.signer)

-- name: is_revoked
SELECT true FROM revocation WHERE subject = %(subject)s LIMIT 1

-- name: parts
SELECT first, size, leaves, signature FROM job_part WHERE bot = %(bot)s ORDER BY first

-- name: lock_bot
SELECT manifest, version, signature, owner_signature FROM bot WHERE id = %(bot)s FOR NO KEY UPDATE

-- name: sign_parts
UPDATE job_part p SET signature = x.signature
  FROM unnest(%(firsts)s::bigint[], %(signatures)s::bytea[]) AS x (first, signature)
 WHERE p.bot = %(bot)s AND p.first = x.first

-- name: sign
UPDATE bot SET signature = coalesce(%(signature)s, signature),
       signed_with = coalesce(%(signed_with)s, signed_with),
       owner_signature = coalesce(%(owner_signature)s, owner_signature),
       waits_for_signature = false, policy_version = policy_version + 1
 WHERE id = %(bot)s

-- name: owners_of_keys
SELECT DISTINCT owner FROM signing_key WHERE sha256(key) = ANY(%(hashes)s)

-- name: project_links
SELECT introduced_by AS old, key AS new, signature FROM project_key
 WHERE introduced_by IS NOT NULL ORDER BY created_at
