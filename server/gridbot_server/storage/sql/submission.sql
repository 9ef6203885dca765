-- name: lock_owner
-- One submission of an owner at a time: submit keys and the quota are judged without races.
SELECT max_jobs FROM owner WHERE id = %(owner)s FOR NO KEY UPDATE

-- name: lock_bot
SELECT state, size, manifest, boinc IS NOT NULL AS is_for_stock, waits_for_signature, growing,
       grown_at IS NOT NULL AS was_growing, closed, together
  FROM bot WHERE id = %(bot)s FOR NO KEY UPDATE

-- name: owner_of
SELECT owner FROM bot WHERE id = %(bot)s

-- name: storage
-- It is not removed before the BOT that is to use it is there.
SELECT id FROM owner_storage WHERE owner = %(owner)s AND name = %(name)s FOR KEY SHARE

-- name: may_compare
SELECT may_compare FROM owner WHERE id = %(owner)s

-- name: sealing
SELECT (SELECT key FROM project_key WHERE introduced_by IS NULL) AS project,
       (SELECT key FROM signing_key WHERE owner = %(owner)s AND revoked_at IS NULL
         ORDER BY created_at DESC, key LIMIT 1) AS owner_key,
       extract(epoch FROM now())::bigint AS now

-- name: is_project_key
SELECT true FROM setting WHERE name = 'project_key' AND value = %(key)s

-- name: is_good_key
SELECT true FROM signing_key
 WHERE key = %(key)s AND owner = %(owner)s AND revoked_at IS NULL

-- name: find
-- With the manifest as it was submitted.
SELECT id, coalesce((SELECT first.manifest FROM bot_manifest first
                      WHERE first.bot = bot.id AND first.version = 1), manifest) AS manifest
  FROM bot WHERE owner = %(owner)s AND submit_key = %(submit_key)s

-- name: unfinished
SELECT coalesce(sum(size), 0)::bigint FROM bot
 WHERE owner = %(owner)s AND state IN ('open', 'running')

-- name: blobs
-- Those that are the owner's.  They stay until the submission, which refers to them, has ended.
SELECT sha256, size FROM blob_owner JOIN blob USING (sha256)
 WHERE owner = %(owner)s AND sha256 = ANY(%(hashes)s) FOR KEY SHARE

-- name: insert_bot
INSERT INTO bot (owner, name, submit_key, state, policy, manifest, signature, quorum, validator,
                 max_attempts, max_replicas, tail_threshold, tail_sticky, failover_after, max_failures,
                 size, version, owner_signature, signed_with, waits_for_signature, compare_with,
                 assurance, program, growing, grown_at, bot_group, together, gather_seconds, derivation,
                 reuse, owner_storage)
VALUES (%(owner)s, %(name)s, %(submit_key)s, %(state)s, %(policy)s, %(manifest)s, %(signature)s,
        %(quorum)s, %(validator)s, %(max_attempts)s, %(max_replicas)s, %(tail_threshold)s,
        %(tail_sticky)s, %(failover_after)s, %(max_failures)s, %(size)s, 2, %(owner_signature)s, %(signed_with)s,
        %(waits)s, %(compare_with)s, %(assurance)s, %(program)s, %(growing)s,
        CASE WHEN %(growing)s THEN now() END, %(bot_group)s, %(together)s, %(gather_seconds)s,
        %(derivation)s, %(reuse)s, %(owner_storage)s)
RETURNING id

-- name: trace
UPDATE bot SET trace = %(trace)s, traced_jobs = %(jobs)s WHERE id = %(bot)s

-- name: insert_range
INSERT INTO job (bot, seq, args)
SELECT %(bot)s, n, jsonb_build_object('i', %(start)s::bigint + n * %(step)s::bigint)
  FROM generate_series(0, %(size)s::bigint - 1) AS n

-- name: copy_jobs
COPY job (bot, seq, args, inputs) FROM STDIN

-- name: copy_parts
COPY job_part (bot, first, size, leaves, signature, append_key) FROM STDIN

-- name: grow
UPDATE bot SET size = size + %(size)s, grown_at = CASE WHEN growing THEN now() END
 WHERE id = %(bot)s

-- name: start
UPDATE bot SET state = 'running' WHERE id = %(bot)s AND state = 'open'

-- name: offer_to_boinc
UPDATE bot SET boinc = %(signed)s WHERE id = %(bot)s

-- name: refuse_boinc
UPDATE bot SET boinc = NULL, boinc_unsuitable = %(why)s WHERE id = %(bot)s

-- name: appended_with
-- What a request appended goes behind the jobs that it knew of.
SELECT first FROM job_part
 WHERE bot = %(bot)s AND first >= %(offset)s AND append_key = %(key)s ORDER BY first LIMIT 1

-- name: parts_between
-- Parts have 64 jobs at most, so the first one that matters begins less than that before the jobs.
SELECT first, leaves FROM job_part
 WHERE bot = %(bot)s AND first > %(first)s - 64 AND first < %(end)s ORDER BY first
