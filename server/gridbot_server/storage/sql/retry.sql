-- name: lock_bot
SELECT state, held, manifest, manifest_version AS version, round, size, done, failed, jobs_cancelled,
       quorum > 1 OR assurance IS NOT NULL AS is_compared, boinc IS NOT NULL AS is_for_stock, owner,
       signature IS NOT NULL AS is_signed_by_project
  FROM bot WHERE id = %(bot)s FOR NO KEY UPDATE

-- name: not_failed
-- Of these jobs, those that cannot be retried, with what they are instead.
SELECT x.seq, CASE WHEN o.canonical IS NOT NULL THEN 'is done'
                   WHEN o.reason = 'cancelled' THEN 'was cancelled'
                   ELSE 'has not failed' END AS why
  FROM unnest(%(jobs)s::bigint[]) AS x (seq)
  LEFT JOIN outcome o ON (o.bot, o.seq) = (%(bot)s, x.seq)
 WHERE o.bot IS NULL OR o.canonical IS NOT NULL OR o.reason = 'cancelled'
 ORDER BY x.seq LIMIT 1

-- name: unbind_failed
-- The first replica of a retry binds its job anew.
DELETE FROM job_kind k USING outcome o
 WHERE k.bot = %(bot)s AND (o.bot, o.seq) = (k.bot, k.seq) AND o.canonical IS NULL
   AND (%(jobs)s::bigint[] IS NULL OR k.seq = ANY(%(jobs)s::bigint[]))

-- name: next_round
-- Its first replicas are watched as those of a new BOT.
WITH gone AS (
    DELETE FROM brake WHERE bot = %(bot)s
)
UPDATE bot SET round = round + 1, failed = failed - %(retried)s, state = 'running',
       ended_at = NULL, held = NULL, watched = true, policy_version = policy_version + 1
 WHERE id = %(bot)s

-- name: began_with
-- How many jobs a version of the manifest began with, if it was made already.
SELECT retried FROM bot_manifest
 WHERE bot = %(bot)s AND manifest = %(manifest)s ORDER BY version DESC LIMIT 1

-- name: job_with_input
-- A job that has a file of its own under one of these names.
SELECT job.seq FROM job CROSS JOIN LATERAL jsonb_array_elements(job.inputs) AS ref
 WHERE job.bot = %(bot)s AND job.inputs IS NOT NULL AND ref->>'name' = ANY(%(names)s) LIMIT 1

-- name: keep_first
INSERT INTO bot_manifest (bot, version, first_round, manifest, made_at)
SELECT id, 1, 0, manifest, created_at FROM bot WHERE id = %(bot)s AND manifest_version = 1

-- name: add_version
INSERT INTO bot_manifest (bot, version, first_round, manifest, retried)
SELECT id, manifest_version + 1, round + 1, %(manifest)s, %(retried)s FROM bot WHERE id = %(bot)s

-- name: replace_manifest
-- Stock clients know one application of each BOT, so what they get is the first version or nothing.
UPDATE bot SET manifest = %(manifest)s, manifest_version = manifest_version + 1,
       first_round = round + 1, owner_signature = %(owner_signature)s, signature = %(signature)s,
       signed_with = %(signed_with)s, waits_for_signature = false, program = %(program)s,
       derivation = NULL,  -- which is that of one manifest
       boinc = NULL, boinc_unsuitable = coalesce(%(unsuitable)s, boinc_unsuitable)
 WHERE id = %(bot)s

-- name: renew_copies
-- Copies that wait are sent with the new version; those in a buffer are put in again.
UPDATE requeue SET round = %(round)s, machine = NULL, claimed_until = NULL WHERE bot = %(bot)s

-- name: begun
-- Jobs without an outcome of which something was sent.
SELECT seq FROM lease WHERE bot = %(bot)s
 UNION
SELECT e.seq FROM ended e
 WHERE e.bot = %(bot)s AND e.how IN ('success', 'expired')
   AND NOT EXISTS (SELECT FROM outcome o WHERE (o.bot, o.seq) = (e.bot, e.seq))

-- name: in_progress
SELECT bot, seq, replica FROM lease WHERE bot = %(bot)s

-- name: unbind
DELETE FROM job_kind WHERE bot = %(bot)s AND seq = ANY(%(jobs)s)

-- name: wake
INSERT INTO pending (bot, seq) SELECT %(bot)s, seq FROM unnest(%(jobs)s::bigint[]) AS x (seq)

-- name: recall
WITH gone AS (
    DELETE FROM provisional WHERE bot = %(bot)s RETURNING seq, replica, is_canonical
)
SELECT seq, replica FROM gone WHERE is_canonical ORDER BY seq
