-- name: lock
SELECT owner, state, deleted_at IS NOT NULL AS is_deleted FROM bot WHERE id = %(bot)s FOR UPDATE

-- name: delete
-- Who still speaks of it is told that it is cancelled; its submit key is free for another BOT.
-- No output is added meanwhile: that locks the row, and the change of a key waits for it.
-- Whose history it is, remains.
WITH gone AS (
    UPDATE bot SET state = 'cancelled', deleted_at = now(), submit_key = gen_random_uuid()::text,
           policy_version = policy_version + 1
     WHERE id = ANY(%(bots)s)
    RETURNING id, owner, name, created_at, ended_at, size - done - failed AS jobs_left
)
INSERT INTO deleted_bot (id, owner, name, created_at, ended_at, jobs_left)
SELECT id, owner, name, created_at, coalesce(ended_at, now()), jobs_left FROM gone
ON CONFLICT DO NOTHING

-- name: lock_kept_too_long
-- As long as a group is in use, all its results stay.
SELECT id FROM bot
 WHERE state IN ('done', 'cancelled') AND deleted_at IS NULL
   AND ended_at < now() - make_interval(days => %(days)s::int)
   -- Its outputs are published before, unless that fails for a month.
   AND (owner_storage IS NULL OR published >= outcomes
        OR ended_at < now() - make_interval(days => %(days)s::int + 30))
   AND NOT EXISTS (SELECT FROM bot other
                    WHERE other.bot_group = bot.bot_group AND other.state IN ('open', 'running'))
 ORDER BY ended_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: next
-- Once no transaction is left that saw it otherwise, and its last replicas were swept.
SELECT id, size FROM bot
 WHERE deleted_at < now() - %(settled)s
   AND NOT EXISTS (SELECT FROM lease WHERE lease.bot = bot.id)
   AND NOT EXISTS (SELECT FROM requeue WHERE requeue.bot = bot.id)
 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED

-- name: plan_by_keys
-- Few rows of large tables, whatever their statistics say.
SELECT set_config('enable_seqscan', 'off', true)

-- name: remove_outputs
DELETE FROM output WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_uploads
DELETE FROM boinc_upload WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_trickles
DELETE FROM boinc_trickle WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_comparisons
DELETE FROM comparison WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_kinds
DELETE FROM job_kind WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_known_answers
DELETE FROM known_answer WHERE bot = %(bot)s AND seq >= %(first)s

-- name: remove_known_outputs
DELETE FROM known_output WHERE bot = %(bot)s AND seq >= %(first)s

-- name: remove_provisional
DELETE FROM provisional WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_outcomes
DELETE FROM outcome WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_reuse
WITH entered AS (
    DELETE FROM derived WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s
), unwanted AS (
    DELETE FROM invalidated WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s
)
DELETE FROM reused WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_derivation
DELETE FROM derivation_seen WHERE bot = %(bot)s

-- name: remove_wake_ups
WITH set_aside AS (
    DELETE FROM dead_letter WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s
)
DELETE FROM pending WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: remove_job_parts
DELETE FROM job_part WHERE bot = %(bot)s AND first >= %(first)s

-- name: remove_jobs
DELETE FROM job WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s

-- name: shrink
UPDATE bot SET size = %(first)s, fed = least(fed, %(first)s) WHERE id = %(bot)s

-- name: remove_ranges
DELETE FROM feed_range WHERE bot = %(bot)s

-- name: remove_counters
DELETE FROM bot_stat WHERE bot = %(bot)s

-- name: remove_events
DELETE FROM result_event WHERE bot = %(bot)s

-- name: remove_group_runs
DELETE FROM group_run WHERE bot = %(bot)s

-- name: remove_appraisal
DELETE FROM appraisal WHERE bot = %(bot)s

-- name: remove_policies
DELETE FROM policy_version WHERE bot = %(bot)s

-- name: remove_bot
DELETE FROM bot WHERE id = %(bot)s

-- name: lock_empty_groups
-- Groups without a BOT, and their owners: whoever submits locks the owner, too, so no BOT comes in
-- meanwhile.  Those of an owner who is submitting just now have time.
SELECT g.id FROM bot_group g JOIN owner ON owner.id = g.owner
 WHERE NOT EXISTS (SELECT FROM bot WHERE bot.bot_group = g.id)
 ORDER BY g.id LIMIT %(limit)s FOR NO KEY UPDATE OF owner SKIP LOCKED

-- name: remove_groups
-- A statement after the locks: a BOT that came in before is seen.
DELETE FROM bot_group g
 WHERE g.id = ANY(%(groups)s) AND NOT EXISTS (SELECT FROM bot WHERE bot.bot_group = g.id)

-- name: old_owners
-- Pages by hash and owner.
SELECT sha256, owner FROM blob_owner
 WHERE (sha256, owner) > (%(after)s, %(after_owner)s) AND sha256 < %(end)s
   AND used_at < now() - %(grace)s
 ORDER BY sha256, owner LIMIT %(limit)s

-- name: disused
SELECT sha256, owner FROM disused(%(owners)s, %(hashes)s)

-- name: lock_owners
-- Not those that somebody is just about to refer to, as with `lock_blobs`.
SELECT sha256, owner FROM blob_owner JOIN unnest(%(owners)s::int[], %(hashes)s::bytea[])
                                       AS pair (owner, sha256) USING (sha256, owner)
 WHERE used_at < now() - %(grace)s
 ORDER BY sha256, owner FOR UPDATE OF blob_owner SKIP LOCKED

-- name: forget_owners
-- A statement after the locks: what was referred to meanwhile is seen.
DELETE FROM blob_owner WHERE (sha256, owner) IN (
       SELECT sha256, owner FROM disused(%(owners)s, %(hashes)s))

-- name: old_blobs
SELECT sha256 FROM blob
 WHERE sha256 > %(after)s AND sha256 < %(end)s AND created_at < now() - %(grace)s
 ORDER BY sha256 LIMIT %(limit)s

-- name: unreferenced
-- Scripts for stock clients and their bundles of outputs are nobody's; all else goes after its owners.
SELECT hash FROM unreferenced(%(hashes)s) AS hash
 WHERE NOT EXISTS (SELECT FROM blob_owner WHERE sha256 = hash)

-- name: lock_blobs
-- Not those that somebody is just about to refer to, who holds the row until that is committed, nor
-- those of which somebody heard meanwhile that they are here.
SELECT sha256 FROM blob
 WHERE sha256 = ANY(%(hashes)s) AND created_at < now() - %(grace)s
 ORDER BY sha256 FOR UPDATE SKIP LOCKED

-- name: forget_blobs
-- A statement after the locks: what was referred to meanwhile is seen.
DELETE FROM blob WHERE sha256 IN (SELECT unreferenced(%(hashes)s))
   AND NOT EXISTS (SELECT FROM blob_owner WHERE blob_owner.sha256 = blob.sha256)

-- name: known_blobs
SELECT sha256 FROM blob WHERE sha256 = ANY(%(hashes)s)
 UNION ALL
SELECT sha256 FROM checkpoint WHERE sha256 = ANY(%(hashes)s)
