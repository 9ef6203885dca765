-- name: plan_by_keys
-- A page is joined row by row; a plan for the whole table would read all of it per page.
SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_seqscan', 'off', true)

-- name: last_outcome
SELECT outcomes FROM bot WHERE id = %(bot)s

-- name: goes_on
SELECT FROM bot WHERE id = %(bot)s AND state IN ('open', 'running') AND held IS NULL

-- name: last_event
SELECT events FROM bot WHERE id = %(bot)s

-- name: results
-- One row per output of a finished job, or one row when it has none, in the order of outcomes.
-- Host, exit code and times of a job that failed are those of its last replica that did.
WITH page AS MATERIALIZED (
    SELECT n, seq, canonical, reason, round FROM outcome
     WHERE bot = %(bot)s AND n > %(after)s AND n <= %(last)s ORDER BY n LIMIT %(limit)s
)
SELECT page.n, page.seq, page.canonical, coalesce(page.reason, ended.reason, '') AS reason,
       job.args::text AS args, coalesce(host.ad->>'Name', host.id::text) AS host,
       coalesce(ended.exit_code, failed.exit_code) AS exit_code,
       coalesce(ended.cpu_seconds, failed.cpu_seconds) AS cpu_seconds,
       coalesce(ended.wall_seconds, failed.wall_seconds) AS wall_seconds, version_of(%(bot)s, coalesce(ended.round, page.round)) AS version,
       output.name, output.sha256, output.size, output.content,
       CASE WHEN output.published_at IS NOT NULL THEN stored_at(%(bot)s, page.seq, output.name) END AS place,
       output.lost_at IS NOT NULL AS is_lost
  FROM page
  JOIN job ON job.bot = %(bot)s AND job.seq = page.seq
  LEFT JOIN ended ON ended.bot = %(bot)s AND ended.seq = page.seq
                 AND ended.replica = page.canonical
  LEFT JOIN LATERAL (
       SELECT host, exit_code, cpu_seconds, wall_seconds FROM ended AS last
        WHERE last.bot = %(bot)s AND last.seq = page.seq AND last.how = 'error'
        ORDER BY last.ended_at DESC, last.replica DESC LIMIT 1) AS failed ON page.canonical IS NULL
  LEFT JOIN host ON host.id = coalesce(ended.host, failed.host)
  LEFT JOIN output ON output.bot = %(bot)s AND output.seq = page.seq
                  AND output.replica = page.canonical
 ORDER BY page.n, output.name

-- name: events
-- As `results`, with what was provisional or recalled; each with the answer that it speaks of.
WITH page AS MATERIALIZED (
    SELECT n, seq, kind, replica FROM result_event
     WHERE bot = %(bot)s AND n > %(after)s AND n <= %(last)s ORDER BY n LIMIT %(limit)s
)
SELECT page.n, page.seq, page.replica AS canonical,
       coalesce(CASE WHEN page.kind = 'failed' THEN outcome.reason END, ended.reason, '') AS reason,
       job.args::text AS args, coalesce(host.ad->>'Name', host.id::text) AS host,
       coalesce(ended.exit_code, failed.exit_code) AS exit_code,
       coalesce(ended.cpu_seconds, failed.cpu_seconds) AS cpu_seconds,
       coalesce(ended.wall_seconds, failed.wall_seconds) AS wall_seconds, version_of(%(bot)s, coalesce(ended.round, outcome.round, 0)) AS version,
       output.name, output.sha256, output.size, output.content,
       CASE WHEN output.published_at IS NOT NULL THEN stored_at(%(bot)s, page.seq, output.name) END AS place,
       output.lost_at IS NOT NULL AS is_lost, page.kind AS event
  FROM page
  JOIN job ON job.bot = %(bot)s AND job.seq = page.seq
  LEFT JOIN outcome ON outcome.bot = %(bot)s AND outcome.seq = page.seq
  LEFT JOIN ended ON ended.bot = %(bot)s AND ended.seq = page.seq
                 AND ended.replica = page.replica
  LEFT JOIN LATERAL (
       SELECT host, exit_code, cpu_seconds, wall_seconds FROM ended AS last
        WHERE last.bot = %(bot)s AND last.seq = page.seq AND last.how = 'error'
        ORDER BY last.ended_at DESC, last.replica DESC LIMIT 1) AS failed ON page.kind = 'failed'
  LEFT JOIN host ON host.id = coalesce(ended.host, failed.host)
  LEFT JOIN output ON output.bot = %(bot)s AND output.seq = page.seq
                  AND output.replica = page.replica
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
-- An answer that lost is compared with the one that its owner knew, or with the canonical one: by what
-- was found when their contents were, else by the files that are not equal to the last bit.
SELECT e.seq, e.replica, e.why, e.how, e.reason, e.exit_code,
       coalesce(host.ad->>'Name', host.id::text) AS host, e.sent_at, e.ended_at,
       version_of(e.bot, e.round) AS version, e.cpu_seconds, e.wall_seconds, e.valid, lost.difference, said, e.stdout, e.stderr
  FROM ended e LEFT JOIN host ON host.id = e.host
       LEFT JOIN boinc_trickle t ON (t.bot, t.seq, t.replica) = (e.bot, e.seq, e.replica)
       LEFT JOIN LATERAL (
       SELECT CASE
              WHEN c.verdict = 'different' THEN format(
                   '%%s: %%s, and %%s in the %%s (%%s)', c.place,
                   CASE WHEN e.digest = c.one THEN c.one_has ELSE c.other_has END,
                   CASE WHEN e.digest = c.one THEN c.other_has ELSE c.one_has END,
                   won.name, c.why)
              WHEN c.verdict = 'crashed' THEN format(
                   'comparing it with the %%s failed: %%s', won.name, c.why)
              ELSE format('not equal to the last bit with the %%s: %%s',
                   won.name, (
                   SELECT string_agg(coalesce(mine.name, its.name), ', '
                                     ORDER BY coalesce(mine.name, its.name))
                     FROM (SELECT name, sha256 FROM output
                            WHERE (bot, seq, replica) = (e.bot, e.seq, e.replica)) AS mine
                     FULL JOIN (SELECT name, sha256 FROM output
                            WHERE (bot, seq, replica) = (e.bot, e.seq, won.replica)
                            UNION ALL
                           SELECT name, sha256 FROM known_output
                            WHERE (bot, seq) = (e.bot, e.seq) AND won.replica IS NULL) AS its
                       ON mine.name = its.name
                    WHERE mine.sha256 IS DISTINCT FROM its.sha256)) END AS difference
         FROM (SELECT digest, NULL::int AS replica, 'known answer' AS name FROM known_answer
                WHERE (bot, seq) = (e.bot, e.seq)
                UNION ALL
               SELECT w.digest, w.replica, format('canonical replica %%s', w.replica)
                 FROM outcome o
                 JOIN ended w ON (w.bot, w.seq, w.replica) = (o.bot, o.seq, o.canonical)
                WHERE (o.bot, o.seq) = (e.bot, e.seq)
                LIMIT 1) AS won
         LEFT JOIN comparison c ON (c.bot, c.seq) = (e.bot, e.seq)
              AND c.one = least(e.digest, won.digest) AND c.other = greatest(e.digest, won.digest)
       ) AS lost ON e.how = 'success' AND NOT e.valid
 WHERE e.bot = %(bot)s AND (e.seq, e.replica) > (%(after_seq)s, %(after_replica)s)
   AND (%(seq)s::bigint IS NULL OR e.seq = %(seq)s)
   AND (%(how)s::text IS NULL OR e.how = %(how)s)
 ORDER BY e.seq, e.replica LIMIT %(limit)s
