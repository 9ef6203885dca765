-- name: lock
-- One change at a time: how many an owner has is bounded, and one key is made for all.
SELECT pg_advisory_xact_lock(hashtext('owner_storage'))

-- name: has_any
SELECT true FROM owner_storage LIMIT 1

-- name: count
SELECT count(*) FROM owner_storage WHERE owner = %(owner)s

-- name: named
SELECT id, owner, name, tag, place, access_key, secret_key
  FROM owner_storage WHERE owner = %(owner)s AND name = %(name)s

-- name: add
-- The same one with other keys is tried at once.
INSERT INTO owner_storage (owner, name, tag, place, access_key, secret_key)
VALUES (%(owner)s, %(name)s, %(tag)s, %(place)s, %(access_key)s, %(secret_key)s)
ON CONFLICT (owner, name) DO UPDATE
   SET access_key = EXCLUDED.access_key, secret_key = EXCLUDED.secret_key, error = NULL,
       failures = 0, due_at = now()

-- name: list
SELECT s.name, s.place, s.tag, s.access_key, s.created_at, s.error,
       (SELECT count(*) FROM incoming WHERE owner_storage = s.id) AS incoming,
       (SELECT coalesce(sum(outcomes - published), 0)::bigint FROM bot
         WHERE owner_storage = s.id AND deleted_at IS NULL) AS unpublished
  FROM owner_storage s WHERE s.owner = %(owner)s ORDER BY s.name

-- name: lock_row
-- No BOT begins to use it meanwhile.
SELECT id FROM owner_storage WHERE id = %(storage)s FOR UPDATE

-- name: bots
-- Those that still speak of a storage: whose outputs are fetched with its key.
SELECT id FROM bot WHERE owner_storage = %(storage)s ORDER BY id LIMIT 10

-- name: incoming
SELECT count(*) FROM incoming WHERE owner_storage = %(storage)s

-- name: remove
DELETE FROM owner_storage WHERE id = %(storage)s

-- name: of_bot
SELECT s.id, s.owner, s.name, s.tag, s.place, s.access_key, s.secret_key
  FROM bot JOIN owner_storage s ON s.id = bot.owner_storage WHERE bot.id = %(bot)s

-- name: lock_replica
-- What one replica announces is counted by one request at a time.
SELECT pg_advisory_xact_lock(hashtextextended(format('%%s-%%s-%%s', %(bot)s::bigint, %(seq)s::bigint,
                                                     %(replica)s::int), 0))

-- name: announced
-- What was announced of a replica beside this content.
SELECT count(*) FILTER (WHERE name = %(name)s) AS of_name, count(*) AS contents,
       coalesce(sum(size), 0)::bigint AS bytes
  FROM incoming
 WHERE bot = %(bot)s AND seq = %(seq)s AND replica = %(replica)s
   AND NOT (name = %(name)s AND sha256 = %(sha256)s)

-- name: announce
INSERT INTO incoming (key, owner_storage, bot, seq, replica, name, sha256, size, url_ends)
VALUES (%(key)s, %(storage)s, %(bot)s, %(seq)s, %(replica)s, %(name)s, %(sha256)s, %(size)s,
        now() + make_interval(secs => %(seconds)s))
ON CONFLICT (bot, seq, replica, name, sha256)
DO UPDATE SET url_ends = greatest(incoming.url_ends, EXCLUDED.url_ends),
              size = greatest(incoming.size, EXCLUDED.size)
RETURNING key

-- name: announced_key
SELECT key FROM incoming
 WHERE bot = %(bot)s AND seq = %(seq)s AND replica = %(replica)s AND name = %(name)s
   AND sha256 = %(sha256)s

-- name: kept_output
-- An output of a job that is done: its content if that is here, its object if a client has sent it.
SELECT o.seq, o.name, o.sha256, o.size, o.published_at IS NOT NULL AS is_published,
       o.lost_at IS NOT NULL AS is_lost, i.key
  FROM outcome JOIN output o ON (o.bot, o.seq, o.replica) = (outcome.bot, outcome.seq, outcome.canonical)
  LEFT JOIN incoming i ON (i.bot, i.seq, i.replica, i.name, i.sha256)
                        = (o.bot, o.seq, o.replica, o.name, o.sha256)
 WHERE outcome.bot = %(bot)s AND outcome.seq = %(seq)s AND o.name = %(name)s

-- name: due
-- Storages for which there is something to do, those first that were looked at longest ago.
SELECT s.id, s.owner, s.name, s.tag, s.place, s.access_key, s.secret_key
  FROM owner_storage s
 WHERE s.due_at <= now() AND s.id <> ALL(%(busy)s::int[])
   AND (EXISTS (SELECT FROM bot WHERE bot.owner_storage = s.id AND bot.published < bot.outcomes
                   AND bot.deleted_at IS NULL)
        OR EXISTS (SELECT FROM incoming i
                    WHERE i.owner_storage = s.id AND i.url_ends < now() - %(grace)s))
 ORDER BY s.due_at LIMIT %(limit)s

-- name: end_turn
-- One that failed waits, up to ten minutes.
UPDATE owner_storage
   SET error = %(error)s,
       failures = CASE WHEN %(error)s::text IS NULL THEN 0 ELSE least(failures + 1, 20) END,
       due_at = now() + CASE WHEN %(error)s::text IS NULL THEN %(pause)s::int
                             ELSE least(600, 2 ^ least(failures, 20)) END * interval '1 second'
 WHERE id = %(storage)s

-- name: unpublished
-- Some, of one BOT after another, in the order of outcomes: of those not tried yet, or of those to be tried again.
SELECT found.*
  FROM bot CROSS JOIN LATERAL (
       SELECT o.bot, o.seq, o.replica, o.name, o.sha256, o.size, o.content, i.key,
              o.missing_since < now() - make_interval(secs => %(lost)s) IS TRUE AS is_long_missing,
              EXISTS (SELECT FROM blob_owner b
                       WHERE (b.sha256, b.owner) = (o.sha256, bot.owner)) AS is_here
         FROM outcome
         JOIN output o ON (o.bot, o.seq, o.replica) = (outcome.bot, outcome.seq, outcome.canonical)
         LEFT JOIN incoming i ON (i.bot, i.seq, i.replica, i.name, i.sha256)
                               = (o.bot, o.seq, o.replica, o.name, o.sha256)
        WHERE outcome.bot = bot.id AND outcome.n > bot.published
          AND o.published_at IS NULL AND o.lost_at IS NULL
          AND CASE WHEN %(again)s THEN o.retry_at <= now() ELSE o.retry_at IS NULL END
        ORDER BY outcome.n LIMIT %(limit)s) AS found
 WHERE bot.owner_storage = %(storage)s AND bot.published < bot.outcomes AND bot.deleted_at IS NULL
 LIMIT %(limit)s

-- name: note_published
UPDATE output SET published_at = now(), retry_at = NULL, missing_since = NULL
 WHERE (bot, seq, replica, name) = (%(bot)s, %(seq)s, %(replica)s, %(name)s)

-- name: note_missing
UPDATE output SET missing_since = coalesce(missing_since, now()), retry_at = now() + interval '1 minute'
 WHERE (bot, seq, replica, name) = (%(bot)s, %(seq)s, %(replica)s, %(name)s)

-- name: note_failed
UPDATE output SET missing_since = NULL, retry_at = now() + interval '1 minute'
 WHERE (bot, seq, replica, name) = (%(bot)s, %(seq)s, %(replica)s, %(name)s)

-- name: note_lost
UPDATE output SET lost_at = now(), retry_at = NULL
 WHERE (bot, seq, replica, name) = (%(bot)s, %(seq)s, %(replica)s, %(name)s)

-- name: lock_behind
-- One BOT at a time, and one that somebody else holds has time.
SELECT id FROM bot WHERE id = %(bot)s FOR NO KEY UPDATE SKIP LOCKED

-- name: advance
-- To the last outcome before the first one of which an output is on its way.  A statement after the
-- lock: each outcome that the BOT counts is seen.
UPDATE bot SET published = coalesce((
           SELECT outcome.n - 1
             FROM outcome
             JOIN output o ON (o.bot, o.seq, o.replica) = (outcome.bot, outcome.seq, outcome.canonical)
            WHERE outcome.bot = bot.id AND outcome.n > bot.published
              AND o.published_at IS NULL AND o.lost_at IS NULL
            ORDER BY outcome.n LIMIT 1), outcomes)
 WHERE id = %(bot)s

-- name: behind
SELECT id FROM bot
 WHERE owner_storage = %(storage)s AND published < outcomes AND deleted_at IS NULL
 ORDER BY id LIMIT %(limit)s

-- name: swept
-- Objects whose URLs have expired and of which nothing is expected any more: their BOT is gone or
-- cancelled, or their job has an outcome and they are not of its canonical replica, or published.
SELECT i.key, i.url_ends
  FROM incoming i
  LEFT JOIN bot ON bot.id = i.bot AND bot.deleted_at IS NULL
  LEFT JOIN outcome ON (outcome.bot, outcome.seq) = (i.bot, i.seq)
  LEFT JOIN output o ON (o.bot, o.seq, o.replica, o.name, o.sha256)
                      = (i.bot, i.seq, i.replica, i.name, i.sha256)
 WHERE i.owner_storage = %(storage)s AND i.url_ends < now() - %(grace)s
   AND (bot.id IS NULL
        OR outcome.bot IS NULL AND bot.state = 'cancelled'
        OR outcome.bot IS NOT NULL
           AND (outcome.canonical IS DISTINCT FROM i.replica OR o.bot IS NULL
                OR o.published_at IS NOT NULL OR o.lost_at IS NOT NULL))
 ORDER BY i.url_ends LIMIT %(limit)s

-- name: forget
-- Unless another URL was given meanwhile.
DELETE FROM incoming WHERE key = %(key)s AND url_ends = %(url_ends)s
