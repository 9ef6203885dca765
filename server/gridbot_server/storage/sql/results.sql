-- name: plan_by_keys
-- A page is joined row by row; a plan for the whole table would read all of it per page.
SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_seqscan', 'off', true)

-- name: last_outcome
SELECT outcomes FROM bot WHERE id = %(bot)s

-- name: results
-- One row per output of a finished job, or one row when it has none, in the order of outcomes.
WITH page AS MATERIALIZED (
    SELECT n, seq, canonical, reason FROM outcome
     WHERE bot = %(bot)s AND n > %(after)s AND n <= %(last)s ORDER BY n LIMIT %(limit)s
)
SELECT page.n, page.seq, page.canonical, coalesce(page.reason, ended.reason, '') AS reason,
       job.args::text AS args, coalesce(host.ad->>'Name', host.id::text) AS host,
       ended.exit_code, ended.cpu_seconds, ended.wall_seconds,
       output.name, output.sha256, output.size, output.content
  FROM page
  JOIN job ON job.bot = %(bot)s AND job.seq = page.seq
  LEFT JOIN ended ON ended.bot = %(bot)s AND ended.seq = page.seq
                 AND ended.replica = page.canonical
  LEFT JOIN host ON host.id = ended.host
  LEFT JOIN output ON output.bot = %(bot)s AND output.seq = page.seq
                  AND output.replica = page.canonical
 ORDER BY page.n, output.name

-- name: outputs
-- The same page, for an archive.
WITH page AS MATERIALIZED (
    SELECT n, seq, canonical, made_at FROM outcome
     WHERE bot = %(bot)s AND n > %(after)s AND n <= %(last)s ORDER BY n LIMIT %(limit)s
)
SELECT page.n, page.seq, page.made_at, output.name, output.sha256, output.size, output.content
  FROM page
  LEFT JOIN output ON output.bot = %(bot)s AND output.seq = page.seq
                  AND output.replica = page.canonical
 ORDER BY page.n, output.name

-- name: output
SELECT output.sha256, output.content
  FROM outcome JOIN output ON output.bot = outcome.bot AND output.seq = outcome.seq
                          AND output.replica = outcome.canonical
 WHERE outcome.bot = %(bot)s AND outcome.seq = %(seq)s AND output.name = %(name)s

-- name: logs
SELECT seq, replica, why, how, reason, exit_code,
       coalesce(host.ad->>'Name', host.id::text) AS host, sent_at, ended_at,
       cpu_seconds, wall_seconds, valid, said, stdout, stderr
  FROM ended LEFT JOIN host ON host.id = ended.host
       LEFT JOIN boinc_trickle USING (bot, seq, replica)
 WHERE bot = %(bot)s AND (seq, replica) > (%(after_seq)s, %(after_replica)s)
   AND (%(seq)s::bigint IS NULL OR seq = %(seq)s)
   AND (%(how)s::text IS NULL OR how = %(how)s)
 ORDER BY seq, replica LIMIT %(limit)s
