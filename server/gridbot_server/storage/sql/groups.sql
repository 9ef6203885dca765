-- name: join
-- The group of this name; made by its first BOT.  The owner's row is locked, so nobody else makes it
-- meanwhile.  The row of a group that is there stays free: outcomes of its other BOTs are numbered
-- while a long submission goes on.
WITH made AS (
    INSERT INTO bot_group (owner, name) SELECT %(owner)s, %(name)s
     WHERE NOT EXISTS (SELECT FROM bot_group WHERE owner = %(owner)s AND name = %(name)s)
    RETURNING id
)
SELECT id FROM made
UNION ALL SELECT id FROM bot_group WHERE owner = %(owner)s AND name = %(name)s

-- name: find
SELECT g.id FROM bot_group g JOIN owner o ON o.id = g.owner
 WHERE g.name = %(name)s AND o.name = %(owner)s

-- name: summaries
-- The latest first; `mine` is null for an operator, who sees everybody's.
SELECT g.name, owner.name AS owner, g.share, g.created_at, g.outcomes AS results,
       count(bot.id) AS bots,
       count(bot.id) FILTER (WHERE bot.state IN ('open', 'running')) AS bots_unfinished,
       count(bot.id) FILTER (WHERE bot.state = 'running' AND bot.held IS NOT NULL) AS bots_held,
       coalesce(sum(bot.size), 0)::bigint AS jobs_total,
       coalesce(sum(bot.done), 0)::bigint AS jobs_done,
       coalesce(sum(bot.failed), 0)::bigint AS jobs_failed,
       coalesce(sum(bot.jobs_cancelled), 0)::bigint AS jobs_cancelled,
       coalesce(sum(bot.size - bot.done - bot.failed), 0)::bigint AS jobs_left
  FROM bot_group g JOIN owner ON owner.id = g.owner
  LEFT JOIN bot ON bot.bot_group = g.id AND bot.deleted_at IS NULL
 WHERE (%(mine)s::int IS NULL OR g.owner = %(mine)s)
   AND (%(group)s::bigint IS NULL OR g.id = %(group)s)
 GROUP BY g.id, owner.name ORDER BY g.id DESC LIMIT %(limit)s

-- name: goes_on
SELECT FROM bot
 WHERE bot_group = %(group)s AND state IN ('open', 'running') AND held IS NULL AND deleted_at IS NULL

-- name: cancel
-- In the order in which others lock rows of BOTs.
UPDATE bot SET state = 'cancelled', ended_at = now(), policy_version = policy_version + 1,
       growing = false
  FROM (SELECT id FROM bot WHERE bot_group = %(group)s AND state IN ('open', 'running')
         ORDER BY id FOR NO KEY UPDATE) AS unfinished
 WHERE bot.id = unfinished.id

-- name: set_share
UPDATE bot_group SET share = %(share)s WHERE id = %(group)s

-- name: tell_dispatch
UPDATE bot SET policy_version = policy_version + 1
  FROM (SELECT id FROM bot WHERE bot_group = %(group)s AND state IN ('open', 'running')
         ORDER BY id FOR NO KEY UPDATE) AS unfinished
 WHERE bot.id = unfinished.id

-- name: last_outcome
SELECT outcomes FROM bot_group WHERE id = %(group)s

-- name: results
-- As the results of one BOT.  A run of which a retry has taken all outcomes away gives none.
WITH page AS MATERIALIZED (
    SELECT run.first + o.n - run.after - 1 AS n, o.bot, o.seq, o.canonical, o.reason, o.round
      FROM group_run run
      JOIN bot ON bot.id = run.bot AND bot.deleted_at IS NULL
      JOIN outcome o ON o.bot = run.bot AND o.n > run.after
                    AND o.n <= run.after + run.last - run.first + 1
     WHERE run.bot_group = %(group)s AND run.last > %(after)s AND run.first <= %(last)s
       AND run.first + o.n - run.after - 1 > %(after)s
     ORDER BY run.last, o.n LIMIT %(limit)s
)
SELECT page.n, page.bot, page.seq, page.canonical, coalesce(page.reason, ended.reason, '') AS reason,
       job.args::text AS args, coalesce(host.ad->>'Name', host.id::text) AS host,
       coalesce(ended.exit_code, failed.exit_code) AS exit_code, coalesce(ended.cpu_seconds, failed.cpu_seconds) AS cpu_seconds,
       coalesce(ended.wall_seconds, failed.wall_seconds) AS wall_seconds, version_of(page.bot, coalesce(ended.round, page.round)) AS version,
       output.name, output.sha256, output.size, output.content,
       CASE WHEN output.published_at IS NOT NULL THEN stored_at(page.bot, page.seq, output.name) END AS place,
       output.lost_at IS NOT NULL AS is_lost
  FROM page
  JOIN job ON job.bot = page.bot AND job.seq = page.seq
  LEFT JOIN ended ON ended.bot = page.bot AND ended.seq = page.seq
                 AND ended.replica = page.canonical
  LEFT JOIN LATERAL (
       SELECT host, exit_code, cpu_seconds, wall_seconds FROM ended AS last
        WHERE last.bot = page.bot AND last.seq = page.seq AND last.how = 'error'
        ORDER BY last.ended_at DESC, last.replica DESC LIMIT 1) AS failed ON page.canonical IS NULL
  LEFT JOIN host ON host.id = coalesce(ended.host, failed.host)
  LEFT JOIN output ON output.bot = page.bot AND output.seq = page.seq
                  AND output.replica = page.canonical
 ORDER BY page.n, output.name
