-- name: failures
-- How replicas failed that were just judged.
SELECT e.bot, e.reason, e.exit_code, last_line(e.stderr) AS line, x.voter
  FROM json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int, voter bigint)
  JOIN ended e ON (e.bot, e.seq, e.replica) = (x.bot, x.seq, x.replica)
 ORDER BY e.bot, e.ended_at

-- name: failing
SELECT bot, reason, exit_code, line, replicas, voters FROM brake WHERE bot = ANY(%(bots)s)

-- name: remember
INSERT INTO brake (bot, reason, exit_code, line, replicas, voters)
SELECT bot, reason, exit_code, line, replicas, voters
  FROM json_to_recordset(%(failing)s) AS x (
       bot bigint, reason text, exit_code int, line text, replicas bigint, voters bigint[])
ON CONFLICT (bot) DO UPDATE SET replicas = excluded.replicas, voters = excluded.voters

-- name: unwatch
WITH gone AS (
    DELETE FROM brake WHERE bot = ANY(%(bots)s)
)
UPDATE bot SET watched = false WHERE id = ANY(%(bots)s) AND watched

-- name: standing
SELECT id, size, failed - jobs_cancelled AS failed, max_failures FROM bot WHERE id = ANY(%(bots)s)

-- name: hold
UPDATE bot SET held = %(why)s, policy_version = policy_version + 1
 WHERE id = %(bot)s AND state = 'running' AND held IS NULL

-- name: resume
-- What held it holds it no more, nor do further failures.
WITH gone AS (
    DELETE FROM brake WHERE bot = %(bot)s
)
UPDATE bot SET held = NULL, watched = false, max_failures = NULL, policy_version = policy_version + 1
 WHERE id = %(bot)s AND state = 'running' AND held IS NOT NULL

-- name: digest
-- Failed replicas that are alike, with one of them.
SELECT g.reason, g.exit_code, g.line, g.replicas, g.jobs, g.hosts, g.seq, g.replica,
       job.args::text AS args
  FROM (SELECT reason, exit_code, last_line(stderr) AS line, count(*) AS replicas,
               count(DISTINCT seq) AS jobs, count(DISTINCT host) AS hosts,
               (array_agg(seq ORDER BY seq, replica))[1] AS seq,
               (array_agg(replica ORDER BY seq, replica))[1] AS replica
          FROM ended WHERE bot = %(bot)s AND how = 'error'
         GROUP BY 1, 2, 3 ORDER BY replicas DESC, seq LIMIT %(limit)s) AS g
  LEFT JOIN job ON job.bot = %(bot)s AND job.seq = g.seq
 ORDER BY g.replicas DESC, g.seq
