-- name: lead
SELECT pg_try_advisory_lock(%(lock)s)

-- name: due
-- Cycles that seldom find something, and would now: one question for all of them.
SELECT cycle
  FROM (VALUES
       ('deadline', EXISTS (SELECT FROM lease WHERE deadline < now())),
       ('gangs', EXISTS (SELECT FROM gang WHERE gather_until < now())
              OR EXISTS (SELECT FROM gang g JOIN bot b ON b.id = g.bot WHERE b.state <> 'running')
              OR EXISTS (SELECT FROM gang_rest r JOIN bot b ON b.id = r.bot
                          WHERE b.state <> 'running')),
       ('sweep', EXISTS (SELECT FROM bot b JOIN lease l ON l.bot = b.id WHERE b.state = 'cancelled')
              OR EXISTS (SELECT FROM bot b JOIN requeue q ON q.bot = b.id
                          WHERE b.state = 'cancelled')
              OR EXISTS (SELECT FROM bot b JOIN unjudged u ON u.bot = b.id
                          WHERE b.state = 'cancelled'))
       ) AS looked (cycle, is_due)
 WHERE is_due

-- name: part
-- The place of this session among those of transitioners that do something, and how many they are.
SELECT number, of
  FROM (SELECT pid, (row_number() OVER (ORDER BY pid) - 1)::int AS number,
               (count(*) OVER ())::int AS of
          FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'gridbot-transitioner'
           AND (state = 'active' OR state_change > now() - make_interval(secs => %(silent)s))
       ) AS present
 WHERE pid = pg_backend_pid()

-- name: take_pending
-- Not locked first: of two who want the same rows one waits, and finds them gone.
WITH taken AS (
    DELETE FROM pending WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM pending
            WHERE bot %% %(of)s::bigint = %(number)s::bigint
              AND bot <> ALL(%(left)s::bigint[])
            LIMIT %(limit)s))
    RETURNING bot, seq
), tried_again AS (
    DELETE FROM dead_letter d USING taken t WHERE (d.bot, d.seq) = (t.bot, t.seq)
)
SELECT bot, seq FROM taken

-- name: set_aside
WITH gone AS (DELETE FROM pending WHERE bot = %(bot)s AND seq = %(seq)s)
INSERT INTO dead_letter (bot, seq, error) VALUES (%(bot)s, %(seq)s, %(error)s)
ON CONFLICT (bot, seq) DO UPDATE SET error = excluded.error, at = excluded.at

-- name: try_again
INSERT INTO pending (bot, seq) SELECT bot, seq FROM dead_letter

-- name: plan_by_keys
-- Jobs are looked up one by one, for this transaction: a plan made while tables were small, or for
-- a batch taken for larger than it is, would read whole tables, ever longer ones.
SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_seqscan', 'off', true)

-- name: lock_bots
-- All that gives outcomes holds the row of its BOT: decisions about one BOT take turns, and its
-- outcomes become visible in the order of their numbers.
SELECT id, state, owner, coalesce((manifest::json #>> '{resources,cpus}')::int, 1) AS cpus,
       quorum, max_attempts, validator, failover_after, max_replicas,
       signature IS NOT NULL OR boinc IS NOT NULL AS among_strangers, assurance,
       EXISTS (SELECT FROM known_answer k WHERE k.bot = bot.id) AS has_known_answers,
       watched, max_failures, first_round, together,
       extract(epoch FROM created_at)::float8 AS created_at
  FROM bot WHERE id = ANY(%(bots)s) ORDER BY id FOR NO KEY UPDATE

-- name: replicas
-- All replicas of the jobs as of one moment: those queued, those in progress, those that ended;
-- and the canonical one of a job that has its outcome, 0 if that is a failure.
WITH x AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
)
SELECT q.bot, q.seq, q.replica, q.round, 'queued' AS how, '' AS reason, NULL::bytea AS digest,
       NULL::boolean AS valid, now() AS ended_at, 0::bigint AS host, 0 AS owner,
       0::bigint AS client, false AS is_silent
  FROM x JOIN requeue q ON (q.bot, q.seq) = (x.bot, x.seq)
 UNION ALL
SELECT l.bot, l.seq, l.replica, l.round, 'leased', '', NULL, NULL, now(), 0, 0, 0,
       c.silent_since IS NOT NULL
  FROM x JOIN lease l ON (l.bot, l.seq) = (x.bot, x.seq) LEFT JOIN client c ON c.id = l.client
 UNION ALL
SELECT e.bot, e.seq, e.replica, e.round, e.how, e.reason, e.digest, e.valid, e.ended_at,
       e.host, e.owner, e.client, false
  FROM x JOIN ended e ON (e.bot, e.seq) = (x.bot, x.seq)
 UNION ALL
SELECT o.bot, o.seq, coalesce(o.canonical, 0), o.round, 'outcome', coalesce(o.reason, ''), NULL,
       NULL, now(), 0, 0, 0, false
  FROM x JOIN outcome o ON (o.bot, o.seq) = (x.bot, x.seq)

-- name: others_work
-- Of these BOTs and voters, those pairs where somebody else holds a replica of the BOT.
-- Unsigned BOTs run only on clients that trust their owner, signed ones among strangers, whose
-- machines count as one.
SELECT x.bot, x.voter
  FROM json_to_recordset(%(voters)s) AS x (bot bigint, voter bigint)
  JOIN bot b ON b.id = x.bot
 WHERE EXISTS (
       SELECT FROM lease l JOIN client c ON c.id = l.client
        WHERE l.bot = x.bot AND c.silent_since IS NULL AND x.voter <>
              CASE WHEN b.signature IS NULL AND b.boinc IS NULL THEN l.host ELSE l.owner END)

-- name: credits
SELECT o.bot, o.seq, o.credit
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN outcome o ON (o.bot, o.seq) = (x.bot, x.seq)

-- name: judge
-- A verdict is given once; what comes back is exactly what is new, for the statistics.
UPDATE ended e SET valid = x.valid
  FROM json_to_recordset(%(verdicts)s) AS x (bot bigint, seq bigint, replica int, valid boolean)
 WHERE (e.bot, e.seq, e.replica) = (x.bot, x.seq, x.replica) AND e.valid IS NULL
RETURNING e.bot, e.seq, e.replica, e.client, e.host, e.owner, e.valid, e.reason,
          coalesce(e.cpu_seconds, 0)::float8 AS cpu_seconds,
          extract(epoch FROM e.ended_at - e.sent_at)::float8 AS turnaround,
          coalesce(e.wall_seconds, 0)::float8 AS wall_seconds,
          extract(epoch FROM now() - e.ended_at)::float8 AS lag,
          CASE WHEN e.why = 'first' THEN extract(epoch FROM e.sent_at)::float8 END AS first_sent_at

-- name: tally_pilots
-- For the overlay: what each pilot did, and for how long.  What it could not end says nothing of
-- its node.
UPDATE client c
   SET jobs = c.jobs + x.good, failures = c.failures + x.bad,
       core_seconds = c.core_seconds + x.core_seconds,
       failure = coalesce(nullif(x.failure, ''), c.failure)
  FROM json_to_recordset(%(clients)s)
       AS x (id bigint, good int, bad int, core_seconds float8, failure text)
 WHERE c.id = x.id AND c.grid IS NOT NULL

-- name: number_outcomes
UPDATE bot b
   SET outcomes = b.outcomes + x.done + x.failed, done = b.done + x.done,
       failed = b.failed + x.failed
  FROM json_to_recordset(%(bots)s) AS x (bot bigint, done bigint, failed bigint)
 WHERE b.id = x.bot
RETURNING b.id AS bot, b.outcomes - x.done - x.failed AS last

-- name: add_turnarounds
UPDATE bot b
   SET turnaround_sum = b.turnaround_sum + x.seconds, turnaround_n = b.turnaround_n + x.n,
       recent_runs = latest_runs(x.runs, b.recent_runs),
       usual_seconds = usual_run(latest_runs(x.runs, b.recent_runs))
  FROM json_to_recordset(%(bots)s) AS x (bot bigint, seconds float8, n bigint, runs real[])
 WHERE b.id = x.bot

-- name: add_outcomes
-- Returns how many jobs of each BOT are done, by grid; who calls it tells by which clients.
WITH made AS (
    INSERT INTO outcome (bot, seq, round, canonical, reason, n, credit)
    SELECT bot, seq, round, canonical, reason, n, credit
      FROM json_to_recordset(%(outcomes)s) AS x (
           bot bigint, seq bigint, round int, canonical int, reason text, n bigint, credit float8)
)
SELECT x.bot, coalesce(c.grid, '') AS grid, sum(x.jobs)::bigint AS jobs
  FROM json_to_recordset(%(done)s) AS x (bot bigint, client bigint, jobs bigint)
  LEFT JOIN client c ON c.id = x.client
 GROUP BY 1, 2

-- name: end_bots
UPDATE bot SET state = 'done', ended_at = now()
 WHERE id = ANY(%(bots)s) AND state = 'running' AND done + failed >= size AND NOT growing
RETURNING id

-- name: rate_hosts
-- Moving averages over the verdicts of one batch; recent CPU time decays with a day.
-- Rows in one order for all writers.  A rate has a floor: PostgreSQL refuses what underflows.
WITH x AS MATERIALIZED (
    SELECT r.* FROM json_to_recordset(%(hosts)s) AS r (
        id bigint, good int, bad int, cpu float8, turnaround float8, factor float8, growth int)
      JOIN host h ON h.id = r.id ORDER BY h.id FOR NO KEY UPDATE OF h
)
UPDATE host h
   SET width = least(1024, greatest(1, h.width * x.factor + x.growth)),
       error_rate = greatest(1e-6, h.error_rate * power(0.95, x.good + x.bad)
                  + (1 - power(0.95, x.good + x.bad)) * x.bad / greatest(1, x.good + x.bad)),
       mean_turnaround = CASE WHEN x.good = 0 THEN h.mean_turnaround
           ELSE coalesce(h.mean_turnaround * power(0.95, x.good), 0)
              + CASE WHEN h.mean_turnaround IS NULL THEN 1 ELSE 1 - power(0.95, x.good) END
              * x.turnaround / x.good END,
       jobs_today = CASE WHEN h.jobs_day = now()::date THEN h.jobs_today ELSE 0 END + x.good,
       jobs_day = now()::date,
       recent_cpu = h.recent_cpu * exp(greatest(-600, extract(epoch FROM h.recent_at - now()) / 86400)) + x.cpu,
       recent_at = now()
  FROM x WHERE h.id = x.id

-- name: crews
SELECT h.id AS host, h.crew, c.name IS NOT NULL AS is_known
  FROM host h LEFT JOIN crew c ON c.name = h.crew WHERE h.id = ANY(%(hosts)s)

-- name: meet_crews
INSERT INTO crew (name, width) SELECT name, 8 FROM unnest(%(names)s::text[]) AS name ORDER BY name
ON CONFLICT DO NOTHING

-- name: widen_crews
-- Rows in one order for all writers.
WITH x AS MATERIALIZED (
    SELECT r.* FROM json_to_recordset(%(crews)s) AS r (name text, factor float8, growth int)
      JOIN crew USING (name) ORDER BY name FOR NO KEY UPDATE OF crew
)
UPDATE crew SET width = least(1024, greatest(1, crew.width * x.factor + x.growth))
  FROM x WHERE crew.name = x.name

-- name: forget_unjudged
DELETE FROM unjudged u
 USING json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int)
 WHERE (u.bot, u.seq, u.replica) = (x.bot, x.seq, x.replica)

-- name: sweep_unjudged
DELETE FROM unjudged WHERE ctid = ANY (ARRAY(
    SELECT u.ctid FROM bot b JOIN unjudged u ON u.bot = b.id
     WHERE b.state = 'cancelled' LIMIT %(limit)s FOR UPDATE OF u SKIP LOCKED))

-- name: purge_open
-- Submissions that nobody finished within a day.
WITH gone AS (
    SELECT id FROM bot WHERE state = 'open' AND created_at < now() - interval '1 day'
     ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED
), emptied AS (
    DELETE FROM job WHERE bot IN (SELECT id FROM gone)
), unsigned AS (
    DELETE FROM job_part WHERE bot IN (SELECT id FROM gone)
)
UPDATE bot SET state = 'cancelled', ended_at = now(), size = 0 WHERE id IN (SELECT id FROM gone)
RETURNING id

-- name: purge_pilots
-- Nobody can speak as a pilot whose key has expired.
DELETE FROM client WHERE grid IS NOT NULL AND expires_at < now() - interval '2 days'
   AND NOT EXISTS (SELECT FROM lease WHERE lease.client = client.id)

-- name: purge_keys
DELETE FROM token WHERE scope = 'pilot' AND expires_at < now() - interval '2 days'
   AND NOT EXISTS (SELECT FROM client WHERE client.token = token.id)

-- name: tails
-- BOTs in which few jobs are unsent, and which have replicas in progress to be speeded up.
SELECT b.id AS bot, b.name, b.owner, o.name AS owner_name, b.signature IS NOT NULL AS signed,
       b.policy, b.policy_version AS version,
       b.max_replicas, b.size, b.done, b.failed,
       b.size - s.first + greatest(0, s.queued) AS unsent,
       greatest(0, s.sent - s.back) AS running, b.tail,
       extract(epoch FROM b.created_at)::float8 AS created_at,
       CASE WHEN b.turnaround_n > 0 THEN b.turnaround_sum / b.turnaround_n END AS mean_turnaround
  FROM bot b JOIN owner o ON o.id = b.owner
 CROSS JOIN LATERAL bot_count(b.id) AS s
 WHERE b.state = 'running' AND b.tail AND b.suspended IS NULL AND b.held IS NULL AND b.together = 1
 ORDER BY b.id

-- name: running_jobs
-- Weighted sampling without replacement; a job weighs the less the more replicas it has
-- (paper section 6.2).  The exponential clocks of the jobs ring in that order.  Chance is the
-- caller's, another number in each pass; the function is that of hash partitions, so it stays as it is.
SELECT l.bot, l.seq FROM lease l
 WHERE l.bot = %(bot)s
   AND NOT EXISTS (SELECT FROM requeue q WHERE (q.bot, q.seq) = (l.bot, l.seq))
 GROUP BY l.bot, l.seq HAVING count(*) < %(most)s
 ORDER BY -ln(((hashint8extended(l.seq, %(chance)s) & 4294967295) + 0.5::float8) / 4294967296)
          * count(*), l.seq
 LIMIT %(limit)s

-- name: next_replicas
-- Of the jobs that run and have no copy queued: the round of their replicas, the next number.
SELECT x.bot, x.seq, max(l.round) AS round, 1 + greatest(max(l.replica),
       (SELECT max(replica) FROM ended e WHERE (e.bot, e.seq) = (x.bot, x.seq))) AS replica
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN lease l ON (l.bot, l.seq) = (x.bot, x.seq)
 WHERE NOT EXISTS (SELECT FROM requeue q WHERE (q.bot, q.seq) = (x.bot, x.seq))
   AND NOT EXISTS (SELECT FROM outcome o WHERE (o.bot, o.seq) = (x.bot, x.seq))
   AND EXISTS (SELECT FROM bot b WHERE b.id = x.bot AND b.state = 'running')
 GROUP BY x.bot, x.seq

-- name: job_queue
SELECT count(*) AS bots, coalesce(sum(size - done - failed), 0)::bigint AS jobs FROM bot WHERE state = 'running'

-- name: last_contact
-- How long ago any client was heard of, in seconds.
SELECT coalesce(extract(epoch FROM now() - max(seen_at)), 0)::float8 FROM client

-- name: holders
-- Clients after one that hold replicas.  From client to client through the index on leases: the
-- price depends on the number of clients, not of leases.
WITH RECURSIVE holder AS (
    (SELECT client, 1 AS place FROM lease WHERE client > %(after)s ORDER BY client LIMIT 1)
     UNION ALL
    SELECT further.client, holder.place + 1
      FROM holder CROSS JOIN LATERAL (
           SELECT client FROM lease WHERE lease.client > holder.client
            ORDER BY client LIMIT 1) AS further
     WHERE holder.place < %(limit)s
)
SELECT c.id, c.seen_at, extract(epoch FROM now() - c.seen_at)::float8 AS seconds,
       c.contact_seconds::float8 AS contact_seconds, k.client IS NOT NULL AS is_stock,
       c.silent_since IS NOT NULL AS is_known
  FROM holder JOIN client c ON c.id = holder.client LEFT JOIN boinc_client k ON k.client = c.id
 ORDER BY c.id

-- name: silence
-- A compare-and-swap: who has asked since it was looked at, or is being served, is not silent.
WITH found AS MATERIALIZED (
    SELECT c.id
      FROM unnest(%(clients)s::bigint[], %(seen_at)s::timestamptz[]) AS x (id, seen_at)
      JOIN client c ON c.id = x.id AND c.seen_at = x.seen_at AND c.silent_since IS NULL
     ORDER BY c.id FOR NO KEY UPDATE OF c SKIP LOCKED
), silenced AS (
    UPDATE client c SET silent_since = now() FROM found WHERE c.id = found.id
)
INSERT INTO pending SELECT l.bot, l.seq FROM found JOIN lease l ON l.client = found.id

-- name: listen
LISTEN gridbot_reports

-- name: clock
SELECT extract(epoch FROM clock_timestamp())::float8

-- name: extend_leases
UPDATE lease SET deadline = deadline + make_interval(secs => %(seconds)s)
