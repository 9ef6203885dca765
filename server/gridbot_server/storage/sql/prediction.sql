-- name: bot
-- The BOT whose end is predicted.
SELECT b.id, b.owner, o.name AS owner_name, o.share, b.state, b.held, b.suspended, b.growing,
       b.waits_for_signature, b.together, b.assurance IS NOT NULL AS is_assured, b.validator,
       b.name, b.size, b.done, b.failed, b.policy, b.policy_version AS version, b.manifest,
       b.signature IS NOT NULL AS signed, b.owner_signature IS NOT NULL AS owner_signed,
       b.owner_storage IS NOT NULL AS has_storage, b.quorum, b.max_attempts, b.max_replicas,
       b.max_failures, b.failover_after, b.tail_threshold, b.tail_sticky, b.tail, extract(epoch FROM b.tail_since)::float8 AS tail_since, b.watched,
       b.round, b.turnaround_sum, b.turnaround_n, b.recent_runs::float8[] AS recent_runs,
       b.usual_seconds::float8 AS usual_seconds,
       extract(epoch FROM b.created_at)::float8 AS created_at,
       s.first AS sent_first, coalesce((SELECT sum(value) FROM bot_stat
                  WHERE bot = b.id AND name = 'sent_error'), 0)::bigint AS sent_after_errors,
       extract(epoch FROM now())::float8 AS now
  FROM bot b JOIN owner o ON o.id = b.owner CROSS JOIN LATERAL bot_count(b.id) AS s
 WHERE b.id = %(bot)s

-- name: leases
-- Its replicas in progress; one too many are asked for, to know that there are more.
SELECT seq, replica, round, why, client, host, owner, extract(epoch FROM sent_at)::float8 AS sent_at,
       extract(epoch FROM deadline)::float8 AS deadline, progress::float8 AS progress
  FROM lease WHERE bot = %(bot)s ORDER BY sent_at, seq, replica LIMIT %(most)s

-- name: copies
-- Its further copies that wait to be sent.
SELECT seq, replica, round, why, prio, pool, vain, extract(epoch FROM not_before)::float8 AS not_before
  FROM requeue WHERE bot = %(bot)s ORDER BY seq, replica LIMIT %(most)s

-- name: pending
-- Its jobs that wait for a decision.
SELECT DISTINCT p.seq FROM pending p
 WHERE p.bot = %(bot)s
   AND NOT EXISTS (SELECT FROM outcome o WHERE o.bot = p.bot AND o.seq = p.seq)
 ORDER BY p.seq LIMIT %(most)s

-- name: ended
-- What became of the replicas of jobs that are left, in the present round.
SELECT e.seq, e.replica, e.round, e.why, e.how, e.reason, e.client, e.host, e.owner, e.valid,
       extract(epoch FROM e.sent_at)::float8 AS sent_at,
       extract(epoch FROM e.ended_at)::float8 AS ended_at
  FROM ended e
 WHERE e.bot = %(bot)s AND e.seq = ANY(%(jobs)s) AND e.round = %(round)s
 ORDER BY e.seq, e.replica LIMIT %(most)s

-- name: kinds
-- The kinds of hosts to which HomogeneousBy binds jobs that are left.
SELECT seq, kind FROM job_kind WHERE bot = %(bot)s AND seq = ANY(%(jobs)s) ORDER BY seq

-- name: runs
-- How long its last answers took, on which hosts.
SELECT e.host, e.wall_seconds::float8 AS seconds,
       extract(epoch FROM e.ended_at)::float8 AS ended_at
  FROM (SELECT seq, canonical, n FROM outcome
         WHERE bot = %(bot)s AND canonical IS NOT NULL ORDER BY n DESC LIMIT %(most)s) AS o
  JOIN ended e ON e.bot = %(bot)s AND e.seq = o.seq AND e.replica = o.canonical
 WHERE e.wall_seconds > 0
 ORDER BY o.n

-- name: clients
-- Clients that are heard of, the latest first, and those that hold its replicas.
WITH latest AS MATERIALIZED (
    SELECT id FROM client
     WHERE seen_at > now() - interval '10 minutes' AND revoked_at IS NULL
       AND (expires_at IS NULL OR expires_at > now())
     ORDER BY seen_at DESC, id LIMIT %(most)s
), wanted AS MATERIALIZED (
    SELECT id FROM latest UNION SELECT client FROM lease WHERE bot = %(bot)s
)
SELECT c.id, c.host, c.owner, o.name AS owner_name, c.accepts, c.trusts, c.protocol, c.grid,
       c.dedicated, h.venue, h.ad, h.error_rate::float8 AS error_rate,
       h.mean_turnaround::float8 AS mean_turnaround,
       CASE WHEN h.jobs_day = now()::date THEN h.jobs_today ELSE 0 END AS jobs_today,
       h.recent_cpu * exp(greatest(-600, extract(epoch FROM h.recent_at - now()) / 86400))::float8
           AS recent_cpu,
       c.revoked_at IS NOT NULL OR c.silent_since IS NOT NULL
           OR coalesce(c.expires_at <= now(), false) OR c.seen_at <= now() - interval '10 minutes' AS is_away,
       extract(epoch FROM c.seen_at)::float8 AS seen_at,
       c.contact_seconds::float8 AS contact_seconds,
       extract(epoch FROM c.silent_since)::float8 AS silent_since,
       extract(epoch FROM c.session_at)::float8 AS session_at,
       extract(epoch FROM c.expires_at)::float8 AS expires_at,
       ARRAY(SELECT unnest(marks) FROM client_cache k WHERE k.client = c.id) AS cached
  FROM wanted JOIN client c ON c.id = wanted.id JOIN host h ON h.id = c.host
  JOIN owner o ON o.id = c.owner
 ORDER BY c.seen_at DESC, c.id

-- name: sessions
-- How long machines stay, and how long they are away, by grid, over the last sessions of a month.
WITH recent AS MATERIALIZED (
    SELECT host, grid, began_at, ended_at FROM host_session
     WHERE ended_at > now() - interval '30 days' ORDER BY ended_at DESC LIMIT %(most)s
), pairs AS (
    SELECT grid, extract(epoch FROM ended_at - began_at) AS stayed,
           extract(epoch FROM began_at - lag(ended_at) OVER (PARTITION BY host ORDER BY began_at))
               AS away
      FROM recent
)
SELECT grid, count(*) AS ended, sum(stayed)::float8 AS stayed_seconds,
       (avg(away) FILTER (WHERE away > 0))::float8 AS away_seconds
  FROM pairs GROUP BY grid ORDER BY grid

-- name: others
-- Other BOTs that use hosts.  Of those of other owners nobody learns more than how many jobs there
-- are, and what they take.
SELECT b.id, b.owner, o.name AS owner_name, o.share, b.manifest,
       CASE WHEN b.owner = %(owner)s THEN b.policy ELSE '' END AS policy,
       greatest(0, b.size - s.first) + greatest(0, s.queued) AS unsent,
       (b.turnaround_sum / nullif(b.turnaround_n, 0))::float8 AS mean_turnaround,
       b.usual_seconds::float8 AS usual_seconds,
       extract(epoch FROM b.created_at)::float8 AS created_at
  FROM bot b JOIN owner o ON o.id = b.owner CROSS JOIN LATERAL bot_count(b.id) AS s
 WHERE b.state = 'running' AND b.held IS NULL AND b.suspended IS NULL AND NOT b.waits_for_signature
   AND b.together = 1 AND b.id <> %(bot)s
   AND (b.size > s.first OR s.queued > 0 OR s.sent > s.back)
 ORDER BY b.id LIMIT %(most)s

-- name: others_leases
-- What hosts have of them.
SELECT bot, client, host, owner, extract(epoch FROM sent_at)::float8 AS sent_at,
       extract(epoch FROM deadline)::float8 AS deadline
  FROM lease WHERE bot = ANY(%(bots)s) AND client = ANY(%(clients)s)
 ORDER BY sent_at, bot, seq, replica LIMIT %(most)s
