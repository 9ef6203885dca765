-- name: replica
-- The BOT's state, whether this client ever had the replica, and its other outputs.
SELECT bot.state,
       EXISTS (SELECT FROM lease WHERE lease.bot = %(bot)s AND seq = %(seq)s
                  AND replica = %(replica)s AND client = %(client)s)
       OR EXISTS (SELECT FROM ended WHERE ended.bot = %(bot)s AND seq = %(seq)s
                     AND replica = %(replica)s AND client = %(client)s) AS is_held,
       bot.manifest,
       coalesce((SELECT args FROM job WHERE (job.bot, job.seq) = (%(bot)s, %(seq)s)), '{}') AS args,
       bot.owner_storage IS NOT NULL AS has_storage,
       other.count AS others, other.bytes
  FROM bot CROSS JOIN LATERAL (
       SELECT count(*), coalesce(sum(size), 0)::bigint AS bytes FROM output
        WHERE output.bot = %(bot)s AND seq = %(seq)s AND replica = %(replica)s
          AND name <> %(name)s) AS other
 WHERE bot.id = %(bot)s

-- name: has_output
SELECT 1 FROM output
 WHERE bot = %(bot)s AND seq = %(seq)s AND replica = %(replica)s AND name = %(name)s
   AND sha256 = %(sha256)s AND content IS NULL

-- name: own_blob
-- Its size, if it is the owner's, who has as much time to refer to it as if it had just been sent.
UPDATE blob_owner SET used_at = now() FROM blob
 WHERE blob.sha256 = %(sha256)s AND (blob_owner.sha256, owner) = (%(sha256)s, %(owner)s)
RETURNING size

-- name: add_blob
-- One that is here already stays until the caller's transaction, which refers to it, has ended.
WITH held AS MATERIALIZED (
    SELECT FROM blob WHERE sha256 = %(sha256)s FOR KEY SHARE
)
INSERT INTO blob (sha256, md5, size)
SELECT %(sha256)s, %(md5)s, %(size)s WHERE NOT EXISTS (SELECT FROM held)
ON CONFLICT DO NOTHING

-- name: add_owner
-- Of a content that was sent whole, by the owner or for one of the owner's BOTs.
INSERT INTO blob_owner (sha256, owner) VALUES (%(sha256)s, %(owner)s)
ON CONFLICT (sha256, owner) DO UPDATE SET used_at = now()

-- name: lock_bot
-- It is not deleted while an output is added to it.
SELECT owner FROM bot WHERE id = %(bot)s AND deleted_at IS NULL FOR KEY SHARE

-- name: add_output
-- A client that ran the replica anew may replace its output, until its success was reported.
INSERT INTO output (bot, seq, replica, name, sha256, size)
VALUES (%(bot)s, %(seq)s, %(replica)s, %(name)s, %(sha256)s, %(size)s)
ON CONFLICT (bot, seq, replica, name)
DO UPDATE SET sha256 = EXCLUDED.sha256, size = EXCLUDED.size, content = NULL
 WHERE output.sha256 = EXCLUDED.sha256
    OR NOT EXISTS (SELECT FROM ended
                    WHERE ended.bot = output.bot AND ended.seq = output.seq
                      AND ended.replica = output.replica AND ended.how = 'success')
RETURNING bot
