-- name: settings
SELECT name, value FROM setting WHERE name IN ('boinc_names', 'boinc_chain')

-- name: account
SELECT owner.id, coalesce(b.name, owner.name), extract(epoch FROM owner.created_at)::bigint,
       token.grid
  FROM token JOIN owner ON owner.id = token.owner LEFT JOIN boinc_account b ON b.owner = owner.id
 WHERE token.hash = %(hash)s AND token.revoked_at IS NULL
   AND (token.expires_at IS NULL OR token.expires_at > now())

-- name: has_account
SELECT 1 FROM boinc_account WHERE email = %(email)s

-- name: add_account
WITH made AS (
    INSERT INTO owner (name) VALUES (%(owner_name)s) RETURNING id
), account AS (
    INSERT INTO boinc_account (owner, name, email)
    SELECT id, %(name)s, %(email)s FROM made RETURNING owner
)
INSERT INTO token (hash, owner, scope, label)
SELECT %(hash)s, owner, 'join', 'made by a BOINC client' FROM account

-- name: client
SELECT c.id, c.hash, c.seqno, extract(epoch FROM c.created_at)::bigint, h.mean_turnaround,
       b.cpid, b.machine, b.place,
       c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > now())
  FROM boinc_client b JOIN client c ON c.id = b.client JOIN host h ON h.id = c.host
 WHERE b.client = %(client)s AND b.owner = %(owner)s

-- name: lock_cpid
-- A first contact and its retry must not become two clients.
SELECT pg_advisory_xact_lock(hashtextextended(%(cpid)s, %(owner)s))

-- name: known_before
-- The latest client of that name on such a machine, or of another name on that very machine.
SELECT client FROM boinc_client
 WHERE owner = %(owner)s
   AND (cpid = %(cpid)s AND machine = %(machine)s OR place = %(place)s AND NOT %(allows_others)s)
 ORDER BY cpid = %(cpid)s DESC, client DESC LIMIT 1

-- name: add_client
WITH made AS (
    INSERT INTO host (identity, owner) VALUES (%(identity)s, %(owner)s) RETURNING id
), joined AS (
    INSERT INTO client (hash, host, owner, grid)
    SELECT %(hash)s, id, %(owner)s, %(grid)s FROM made RETURNING id
)
INSERT INTO boinc_client (client, owner, cpid, machine, place)
SELECT id, %(owner)s, %(cpid)s, %(machine)s, %(place)s FROM joined RETURNING client

-- name: change_identity
UPDATE boinc_client SET cpid = %(cpid)s, machine = %(machine)s, place = %(place)s
 WHERE client = %(client)s

-- name: count_anew
UPDATE client SET seqno = -1 WHERE id = %(client)s

-- name: leases
SELECT bot, seq, replica FROM lease WHERE client = %(client)s

-- name: bots
SELECT id, manifest, boinc FROM bot WHERE id = ANY(%(bots)s)

-- name: md5s
SELECT encode(sha256, 'hex'), encode(md5, 'hex') FROM blob WHERE sha256 = ANY(%(hashes)s)

-- name: uploads
SELECT u.bot, u.seq, u.replica, u.number, encode(u.md5, 'hex'), u.size
  FROM json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int)
  JOIN boinc_upload u ON (u.bot, u.seq, u.replica) = (x.bot, x.seq, x.replica)

-- name: outputs
SELECT o.bot, o.seq, o.replica, o.name, encode(o.sha256, 'hex'), o.size
  FROM json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int)
  JOIN output o ON (o.bot, o.seq, o.replica) = (x.bot, x.seq, x.replica)

-- name: upload
SELECT encode(md5, 'hex'), size FROM boinc_upload
 WHERE (bot, seq, replica, number) = (%(bot)s, %(seq)s, %(replica)s, %(number)s)

-- name: replica
-- The BOT's manifest if this client has or had the replica, and whether its success is reported.
SELECT bot.manifest,
       EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq, e.replica)
                   = (%(bot)s, %(seq)s, %(replica)s) AND e.how = 'success')
  FROM bot
 WHERE bot.id = %(bot)s AND bot.state <> 'cancelled'
   AND (EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq, l.replica, l.client)
                    = (%(bot)s, %(seq)s, %(replica)s, %(client)s))
     OR EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq, e.replica, e.client)
                    = (%(bot)s, %(seq)s, %(replica)s, %(client)s)))

-- name: drop_outputs
DELETE FROM output WHERE (bot, seq, replica) = (%(bot)s, %(seq)s, %(replica)s)

-- name: add_output
INSERT INTO output (bot, seq, replica, name, sha256, size, content)
VALUES (%(bot)s, %(seq)s, %(replica)s, %(name)s, %(sha256)s, %(size)s, %(content)s)

-- name: add_upload
INSERT INTO boinc_upload (bot, seq, replica, number, md5, size)
VALUES (%(bot)s, %(seq)s, %(replica)s, %(number)s, %(md5)s, %(size)s)
ON CONFLICT (bot, seq, replica, number) DO UPDATE SET md5 = EXCLUDED.md5, size = EXCLUDED.size

-- name: add_blob
INSERT INTO blob (sha256, md5, size) VALUES (%(sha256)s, %(md5)s, %(size)s) ON CONFLICT DO NOTHING
