-- name: settings
SELECT name, value FROM setting WHERE name IN ('boinc_names', 'boinc_chain')

-- name: callers
-- Each with a valid key, the client of that number if it is the same owner's, and their credit.
-- No key that opens more than an account: jobs can read the key of the client that runs them.  No
-- invitation: this protocol does not tell machines apart well enough to count them.
SELECT x.place AS number, o.id AS owner, coalesce(b.name, o.name) AS owner_name,
       extract(epoch FROM o.created_at)::bigint AS owner_since,
       b.owner IS NOT NULL AS is_self_made,
       coalesce(v.total, 0) AS owner_credit,
       coalesce(average_credit(v.average, v.averaged_at), 0) AS owner_recent_credit,
       coalesce(team.name, '') AS team, o.preferences_version, o.resource_shares,
       c.id AS client, c.hash, c.seqno,
       extract(epoch FROM c.created_at)::bigint AS client_since, h.mean_turnaround,
       k.cpid, k.machine, k.place,
       c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > now()) AS is_welcome,
       coalesce(e.total, 0) AS host_credit,
       coalesce(average_credit(e.average, e.averaged_at), 0) AS host_recent_credit, h.venue,
       CASE WHEN h.banned_at IS NOT NULL THEN h.banned_why END AS banned,
       extract(epoch FROM now() - c.seen_at)::float8 AS silent_seconds,
       coalesce(held.marks, '{}') AS marks
  FROM json_to_recordset(%(callers)s) AS x (place int, hash text, client bigint)
  JOIN token t ON t.hash = decode(x.hash, 'hex') AND t.scope IN ('join', 'account')
   AND t.uses IS NULL AND t.revoked_at IS NULL
   AND (t.expires_at IS NULL OR t.expires_at > now())
  JOIN owner o ON o.id = t.owner
  LEFT JOIN boinc_account b ON b.owner = o.id
  LEFT JOIN volunteer v ON v.owner = o.id
  LEFT JOIN team ON team.id = v.team
  LEFT JOIN boinc_client k ON k.client = x.client AND k.owner = o.id
  LEFT JOIN client c ON c.id = k.client
  LEFT JOIN host h ON h.id = c.host
  LEFT JOIN host_credit e ON e.host = c.host
  LEFT JOIN client_cache held ON held.client = c.id

-- name: is_self_made
SELECT 1 FROM boinc_account WHERE owner = %(owner)s

-- name: has_account
SELECT 1 FROM boinc_account WHERE email = %(email)s

-- name: add_account
WITH made AS (
    INSERT INTO owner (name) VALUES (%(owner_name)s) RETURNING id
), account AS (
    INSERT INTO boinc_account (owner, name, email, password_key, terms, agreed_at)
    SELECT id, %(name)s, %(email)s, %(hash)s, %(terms)s,
           CASE WHEN %(terms)s::bytea IS NOT NULL THEN now() END
      FROM made RETURNING owner
)
INSERT INTO token (hash, owner, scope, label)
SELECT %(hash)s, owner, 'join', 'made by a BOINC client' FROM account

-- name: is_of_password
-- Whether a key is good, and the one that the present password of a volunteer's account gives.
SELECT 1 FROM token t JOIN boinc_account b ON b.owner = t.owner
 WHERE t.hash = %(hash)s AND coalesce(b.password_key, t.hash) = t.hash
   AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())

-- name: add_account_key
-- For the owner of a key that attaches, if that is the one of a volunteer's present password.
INSERT INTO token (hash, owner, scope, label)
SELECT %(hash)s, b.owner, 'account', 'of an account''s password'
  FROM token t JOIN boinc_account b ON b.owner = t.owner
 WHERE t.hash = %(joining)s AND coalesce(b.password_key, t.hash) = t.hash
ON CONFLICT (hash) DO NOTHING

-- name: is_good_key
SELECT 1 FROM token
 WHERE hash = %(hash)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())

-- name: add_weak_key
-- It ends with the key that it is made of.
INSERT INTO token (hash, owner, scope, label, expires_at, made_of)
SELECT %(hash)s, owner, 'join', 'for an account manager', expires_at, id
  FROM token WHERE hash = %(made_of)s
ON CONFLICT (hash) DO NOTHING

-- name: managed_account
-- What an account manager may know, of a key that may change an account.
SELECT o.id, coalesce(b.name, o.name) AS name, extract(epoch FROM o.created_at)::bigint AS created_at,
       o.venue, o.resource_shares, o.preferences, o.preferences_version,
       coalesce(v.is_public, false) AS is_public, coalesce(v.team, 0) AS team,
       coalesce(team.founder = o.id, false) AS is_founder
  FROM token t JOIN owner o ON o.id = t.owner
  LEFT JOIN boinc_account b ON b.owner = o.id
  LEFT JOIN volunteer v ON v.owner = o.id
  LEFT JOIN team ON team.id = v.team
 WHERE t.hash = %(hash)s AND t.scope IN ('account', 'user', 'operator') AND t.revoked_at IS NULL
   AND (t.expires_at IS NULL OR t.expires_at > now())

-- name: change_account
UPDATE owner SET venue = coalesce(%(venue)s, venue),
                 resource_shares = coalesce(%(shares)s::jsonb, resource_shares)
 WHERE id = %(owner)s

-- name: rename_account
UPDATE boinc_account SET name = %(name)s WHERE owner = %(owner)s

-- name: team_exists
SELECT 1 FROM team WHERE id = %(team)s

-- name: host_of_client
SELECT host FROM client WHERE id = %(client)s AND owner = %(owner)s

-- name: lock_cpid
-- A first contact and its retry must not become two clients.
SELECT pg_advisory_xact_lock(hashtextextended(%(cpid)s, %(owner)s))

-- name: known_before
-- The latest client of that name on such a machine, or of another name on that very machine.
SELECT client FROM boinc_client
 WHERE owner = %(owner)s
   AND (cpid = %(cpid)s AND cpid <> '' AND machine = %(machine)s
        OR place = %(place)s AND NOT %(allows_others)s)
 ORDER BY cpid = %(cpid)s DESC, client DESC LIMIT 1

-- name: add_client
WITH made AS (
    INSERT INTO host (identity, owner, venue)
    SELECT %(identity)s, id, venue FROM owner WHERE id = %(owner)s RETURNING id
), joined AS (
    INSERT INTO client (hash, host, owner)
    SELECT %(hash)s, id, %(owner)s FROM made RETURNING id
)
INSERT INTO boinc_client (client, owner, cpid, machine, place)
SELECT id, %(owner)s, %(cpid)s, %(machine)s, %(place)s FROM joined RETURNING client

-- name: change_identity
UPDATE boinc_client SET cpid = %(cpid)s, machine = %(machine)s, place = %(place)s
 WHERE client = %(client)s

-- name: count_anew
-- One that never came further than this repeats what was lost, and is not given work twice.
UPDATE client SET seqno = -1 WHERE id = %(client)s AND seqno > 0

-- name: leases
SELECT bot, seq, replica FROM lease WHERE client = %(client)s

-- name: chain
SELECT value FROM setting WHERE name = 'boinc_chain'

-- name: share_chain
-- Nothing is signed with a key that is replaced meanwhile.
SELECT value FROM setting WHERE name = 'boinc_chain' FOR SHARE

-- name: lock_chain
SELECT value FROM setting WHERE name = 'boinc_chain' FOR UPDATE

-- name: change_chain
UPDATE setting SET value = %(chain)s WHERE name = 'boinc_chain'

-- name: state_and_manifest
SELECT state, manifest, boinc IS NOT NULL AS is_offered, manifest_version > 1 AS is_replaced,
       owner_storage IS NOT NULL AS has_storage
  FROM bot WHERE id = %(bot)s

-- name: try_jobs_lock
SELECT pg_try_advisory_xact_lock(%(lock)s)

-- name: unusual_jobs
SELECT args, inputs FROM job
 WHERE bot = %(bot)s AND (inputs IS NOT NULL OR octet_length(args::text) > %(most)s)

-- name: offer
UPDATE bot SET boinc = %(signed)s, boinc_unsuitable = NULL, waits_for_signature = false, policy_version = policy_version + 1
 WHERE id = %(bot)s

-- name: withdraw
-- Also those that have ended: a retry would run them again.
UPDATE bot SET boinc = NULL, boinc_unsuitable = %(why)s, policy_version = policy_version + 1
 WHERE boinc IS NOT NULL

-- name: withdrawn
SELECT id FROM bot
 WHERE boinc_unsuitable = %(why)s AND state IN ('open', 'running') ORDER BY id

-- name: hear
-- What is new goes behind what was said before, whose beginning is dropped in favour of it.
INSERT INTO boinc_trickle AS kept (bot, seq, replica, said_at, said)
SELECT x.bot, x.seq, x.replica, max(x.said_at), right(string_agg(x.said, E'\n' ORDER BY x.said_at), %(most)s)
  FROM json_to_recordset(%(trickles)s) AS x (
       bot bigint, seq bigint, replica int, said_at bigint, said text)
  LEFT JOIN boinc_trickle t ON (t.bot, t.seq, t.replica) = (x.bot, x.seq, x.replica)
 WHERE (t.said_at IS NULL OR t.said_at < x.said_at)
   AND EXISTS (SELECT FROM bot WHERE bot.id = x.bot AND bot.deleted_at IS NULL)
 GROUP BY x.bot, x.seq, x.replica ORDER BY x.bot, x.seq, x.replica
ON CONFLICT (bot, seq, replica) DO UPDATE
   SET said_at = EXCLUDED.said_at, said = right(kept.said || E'\n' || EXCLUDED.said, %(most)s)
 WHERE kept.said_at < EXCLUDED.said_at

-- name: bots
SELECT id AS bot, manifest, boinc AS application FROM bot WHERE id = ANY(%(bots)s)

-- name: md5s
SELECT encode(sha256, 'hex'), encode(md5, 'hex') FROM blob WHERE sha256 = ANY(%(hashes)s)

-- name: uploads
-- A row for each output that an upload brings, or one without: it brings one of the replica's, or all.
SELECT u.bot, u.seq, u.replica, u.number, encode(u.md5, 'hex') AS md5, u.size,
       o.name AS output, encode(o.sha256, 'hex') AS output_sha256, o.size AS output_size
  FROM json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int)
  JOIN boinc_upload u ON (u.bot, u.seq, u.replica) = (x.bot, x.seq, x.replica)
  LEFT JOIN output o ON (o.bot, o.seq, o.replica) = (x.bot, x.seq, x.replica)
                    AND (u.single IS NULL OR o.name = u.single)

-- name: other_uploads
-- Bytes of the other files that a replica has uploaded.
SELECT coalesce(sum(size), 0)::bigint FROM boinc_upload
 WHERE (bot, seq, replica) = (%(bot)s, %(seq)s, %(replica)s) AND number <> %(number)s

-- name: upload
SELECT encode(md5, 'hex') AS md5, size, times FROM boinc_upload
 WHERE (bot, seq, replica, number) = (%(bot)s, %(seq)s, %(replica)s, %(number)s)

-- name: replica
-- The BOT's manifest if this client has or had the replica, whether its success is reported, and
-- whose the client is.  The BOT is not deleted while outputs are added to it.
SELECT bot.manifest,
       EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq, e.replica)
                   = (%(bot)s, %(seq)s, %(replica)s) AND e.how = 'success') AS is_reported,
       (SELECT owner FROM client WHERE id = %(client)s) AS owner
  FROM bot
 WHERE bot.id = %(bot)s AND bot.state <> 'cancelled'
   AND EXISTS (SELECT FROM client WHERE id = %(client)s AND revoked_at IS NULL)
   AND (EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq, l.replica, l.client)
                    = (%(bot)s, %(seq)s, %(replica)s, %(client)s))
     OR EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq, e.replica, e.client)
                    = (%(bot)s, %(seq)s, %(replica)s, %(client)s)))
   FOR KEY SHARE OF bot

-- name: lock_lease
-- It cannot be reported until the outputs in hand are kept.
SELECT FROM lease WHERE (bot, seq, replica) = (%(bot)s, %(seq)s, %(replica)s) FOR UPDATE

-- name: drop_outputs
-- Before the lease: in that order dispatch locks them.
DELETE FROM output WHERE (bot, seq, replica) = (%(bot)s, %(seq)s, %(replica)s)
   AND (%(single)s::text IS NULL OR name = %(single)s)

-- name: add_output
INSERT INTO output (bot, seq, replica, name, sha256, size, content)
VALUES (%(bot)s, %(seq)s, %(replica)s, %(name)s, %(sha256)s, %(size)s, %(content)s)

-- name: add_upload
INSERT INTO boinc_upload (bot, seq, replica, number, md5, size, single)
VALUES (%(bot)s, %(seq)s, %(replica)s, %(number)s, %(md5)s, %(size)s, %(single)s)
ON CONFLICT (bot, seq, replica, number)
DO UPDATE SET md5 = EXCLUDED.md5, size = EXCLUDED.size, times = boinc_upload.times + 1

-- name: add_blob
-- One that is here already stays until the caller's transaction, which refers to it, has ended.
WITH held AS MATERIALIZED (
    SELECT FROM blob WHERE sha256 = %(sha256)s FOR KEY SHARE
)
INSERT INTO blob (sha256, md5, size)
SELECT %(sha256)s, %(md5)s, %(size)s WHERE NOT EXISTS (SELECT FROM held)
ON CONFLICT DO NOTHING

-- name: add_owner
-- An output belongs to the owner of its BOT.
INSERT INTO blob_owner (sha256, owner) SELECT %(sha256)s, owner FROM bot WHERE id = %(bot)s
ON CONFLICT (sha256, owner) DO UPDATE SET used_at = now()
