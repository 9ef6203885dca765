-- name: held
-- The lease that a client must have, which does not go before the caller's transaction has ended.
-- Others go on only from what a machine saved that the BOT's owner or an operator answers for, and
-- not if answers are compared: a quorum's must not come from one another.
SELECT bot.manifest, lease.round, lease.host,
       bot.quorum = 1 AND (lease.owner = bot.owner OR client.dedicated OR client.grid IS NOT NULL)
           AS is_shared
  FROM lease JOIN bot ON bot.id = lease.bot JOIN client ON client.id = lease.client
 WHERE (lease.bot, lease.seq, lease.replica) = (%(bot)s, %(seq)s, %(replica)s)
   AND lease.client = %(client)s
   FOR KEY SHARE OF lease

-- name: has
SELECT FROM checkpoint
 WHERE (bot, seq, host, replica, number) = (%(bot)s, %(seq)s, %(host)s, %(replica)s, %(number)s)
   AND sha256 = %(sha256)s

-- name: replaced
-- What a new checkpoint takes the place of: that of its machine, and what nobody adds to any more.
SELECT sha256 FROM checkpoint
 WHERE (bot, seq) = (%(bot)s, %(seq)s) AND sha256 <> %(sha256)s
   AND (host = %(host)s
        OR %(is_shared)s AND number < %(number)s AND NOT EXISTS (
           SELECT FROM lease WHERE (lease.bot, lease.seq, lease.replica)
                                 = (checkpoint.bot, checkpoint.seq, checkpoint.replica)))
 ORDER BY host FOR UPDATE

-- name: keep
-- A number that does not rise is of a request that came late.
INSERT INTO checkpoint (bot, seq, host, replica, round, number, is_shared, sha256, size)
VALUES (%(bot)s, %(seq)s, %(host)s, %(replica)s, %(round)s, %(number)s, %(is_shared)s, %(sha256)s,
        %(size)s)
ON CONFLICT (bot, seq, host)
DO UPDATE SET replica = EXCLUDED.replica, round = EXCLUDED.round, number = EXCLUDED.number,
              is_shared = EXCLUDED.is_shared, sha256 = EXCLUDED.sha256, size = EXCLUDED.size,
              made_at = now()
 WHERE (checkpoint.replica, checkpoint.number) <= (EXCLUDED.replica, EXCLUDED.number)
RETURNING bot

-- name: drop
DELETE FROM checkpoint
 WHERE (bot, seq) = (%(bot)s, %(seq)s) AND host <> %(host)s AND sha256 = ANY(%(hashes)s)

-- name: latest
-- With which a replica begins.  One from which replicas began that failed is not tried for ever, and
-- nobody answers for a machine that is banned by now.
SELECT c.number, encode(c.sha256, 'hex') AS sha256, c.size
  FROM lease JOIN checkpoint c ON (c.bot, c.seq, c.round) = (lease.bot, lease.seq, lease.round)
 WHERE (lease.bot, lease.seq, lease.replica) = (%(bot)s, %(seq)s, %(replica)s)
   AND lease.client = %(client)s AND (c.host = lease.host OR c.is_shared)
   AND NOT EXISTS (SELECT FROM host WHERE host.id = c.host AND host.banned_at IS NOT NULL)
   AND (SELECT count(*) FROM ended WHERE (ended.bot, ended.seq) = (c.bot, c.seq)
           AND ended.how = 'error' AND ended.ended_at > c.made_at) < 2
 ORDER BY c.number DESC, c.made_at DESC LIMIT 1

-- name: over
-- Of jobs that are decided, or that nobody wants any more.
DELETE FROM checkpoint WHERE ctid = ANY (ARRAY(
    SELECT c.ctid FROM checkpoint c LEFT JOIN bot ON bot.id = c.bot
     WHERE bot.id IS NULL OR bot.state NOT IN ('open', 'running') OR EXISTS (
           SELECT FROM outcome WHERE (outcome.bot, outcome.seq) = (c.bot, c.seq))
     LIMIT %(limit)s FOR UPDATE OF c SKIP LOCKED))
RETURNING sha256

-- name: unused
-- Content that was a checkpoint's, and is nothing else.
SELECT hash FROM unnest(%(hashes)s::bytea[]) AS hash
 WHERE NOT EXISTS (SELECT FROM blob WHERE blob.sha256 = hash)
   AND NOT EXISTS (SELECT FROM checkpoint WHERE checkpoint.sha256 = hash)
