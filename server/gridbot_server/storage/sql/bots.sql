-- name: owner
-- A deleted BOT is nobody's.
SELECT owner FROM bot WHERE id = %(bot)s AND deleted_at IS NULL

-- name: summaries
-- `mine` is null for an operator, who sees everybody's.
SELECT bot.id, bot.name, owner.name AS owner,
       bot_state(bot.state, bot.held) AS state, CASE WHEN bot.state = 'running' THEN bot.held END AS held,
       bot.created_at, bot.ended_at,
       bot.size AS jobs_total, bot.done AS jobs_done, bot.failed AS jobs_failed, bot.jobs_cancelled,
       bot.reused AS jobs_reused,
       bot.size - bot.done - bot.failed AS jobs_left,
       sent.replicas AS jobs_running, silent.jobs AS jobs_silent, sent.jobs AS jobs_in_progress,
       bot.size - bot.done - bot.failed - sent.jobs - silent.jobs AS jobs_waiting,
       CASE WHEN bot.state IN ('open', 'running')
            THEN greatest(0, bot.size - count.first + count.queued - silent.queued)
            ELSE 0 END AS jobs_unsent,
       bot.tail, bot.growing, bot_group.name AS "group"
  FROM bot JOIN owner ON owner.id = bot.owner
 LEFT JOIN bot_group ON bot_group.id = bot.bot_group
 CROSS JOIN LATERAL bot_count(bot.id) AS count
 CROSS JOIN LATERAL silent_count(bot.id) AS silent
 CROSS JOIN LATERAL (
       SELECT count(*) - silent.replicas AS replicas, count(DISTINCT lease.seq) - silent.jobs AS jobs
         FROM lease WHERE lease.bot = bot.id) AS sent
 WHERE bot.deleted_at IS NULL
   AND (%(mine)s::int IS NULL OR bot.owner = %(mine)s)
   AND (%(state)s::text IS NULL OR bot_state(bot.state, bot.held) = %(state)s)
   AND (%(bot)s::bigint IS NULL OR bot.id = %(bot)s)
   AND (%(group)s::text IS NULL OR bot_group.name = %(group)s)
 ORDER BY bot.id DESC LIMIT %(limit)s

-- name: details
SELECT closed, tail_since, quorum, assurance::float8 AS assurance, provisional,
       CASE WHEN done > 0 AND events > 0 THEN 1 - doubt / done END AS confidence, validator, max_attempts, max_replicas, tail_threshold, tail_sticky,
       failover_after, max_failures, policy, suspended,
       policy_version, round, manifest_version AS version, manifest, signature IS NOT NULL AS signed,
       owner_signature IS NOT NULL AS owner_signed, waits_for_signature,
       boinc IS NOT NULL AS signed_for_boinc, boinc_unsuitable,
       (SELECT s.name FROM owner_storage s WHERE s.id = owner_storage) AS outputs_to,
       CASE WHEN owner_storage IS NOT NULL THEN outcomes - published END AS unpublished,
       turnaround_sum / nullif(turnaround_n, 0) AS mean_turnaround_seconds,
       cut_off, cut_off_seconds::float8 AS cut_off_seconds, cut_off_grid,
       (SELECT coalesce(json_object_agg(said.key, said.value), '{}')
          FROM refusals r, jsonb_each_text(r.bots -> (bot.id::text)) AS said
         WHERE r.said_at > now() - interval '15 minutes') AS refused_by
  FROM bot WHERE id = %(bot)s

-- name: rate
-- Jobs per second over the last outcomes; a BOT at which nothing happens slows down by itself.
SELECT (count(*) / nullif(extract(epoch FROM
           coalesce((SELECT ended_at FROM bot WHERE id = %(bot)s), now()) - min(made_at)), 0)
       )::float8 AS jobs_per_second
  FROM (SELECT made_at FROM outcome WHERE bot = %(bot)s ORDER BY n DESC LIMIT 500) AS recent

-- name: sent
-- What was cancelled before it was sent is counted, but was not made.
SELECT why, sum(value)::bigint AS sent
  FROM (SELECT CASE name WHEN 'withheld' THEN 'first' ELSE substr(name, 6) END AS why,
               CASE name WHEN 'withheld' THEN -value ELSE value END AS value
          FROM bot_stat
         WHERE bot = %(bot)s AND (name LIKE 'sent\_%%' OR name = 'withheld')) AS counted
 GROUP BY why HAVING sum(value) > 0

-- name: cancel
UPDATE bot SET state = 'cancelled', ended_at = now(), policy_version = policy_version + 1,
       growing = false
 WHERE id = %(bot)s AND state IN ('open', 'running')

-- name: change
UPDATE bot SET policy = coalesce(%(policy)s, policy),
       assurance = CASE WHEN %(policy)s::text IS NULL THEN assurance ELSE %(assurance)s END, name = coalesce(%(name)s, name),
       tail_threshold = CASE WHEN %(set_threshold)s THEN %(tail_threshold)s::int
                             ELSE tail_threshold END,
       tail_sticky = coalesce(%(tail_sticky)s, tail_sticky),
       failover_after = CASE WHEN %(set_failover)s THEN %(failover_after)s::int
                             ELSE failover_after END,
       max_attempts = coalesce(%(max_attempts)s, max_attempts),
       max_failures = CASE WHEN %(set_max_failures)s THEN %(max_failures)s::text
                           ELSE max_failures END,
       max_replicas = coalesce(%(max_replicas)s, max_replicas),
       suspended = CASE WHEN %(policy)s::text IS NULL THEN suspended END,
       policy_version = policy_version + 1
 WHERE id = %(bot)s AND quorum <= coalesce(%(max_replicas)s, max_replicas)
RETURNING id

-- name: unbind
-- What another HomogeneousBy gave binds no job.
DELETE FROM job_kind WHERE bot = %(bot)s

-- name: manifest
SELECT manifest, signature, owner_signature FROM bot WHERE id = %(bot)s

-- name: clients_known
-- How many clients there are, as they were counted last; -1 if they never were.
SELECT reltuples::float8 FROM pg_class WHERE oid = 'client'::regclass

-- name: clients_seen
-- Those that asked for work in the last day, the latest first, of so many per cent of the table's
-- pages: an index by their contacts would have to be written at each of them. Always of the same
-- pages, so that who looks again sees the same hosts.
SELECT client.id FROM client TABLESAMPLE SYSTEM (%(percent)s) REPEATABLE (0)
 WHERE client.seen_at > now() - interval '1 day' AND client.revoked_at IS NULL
   AND (client.expires_at IS NULL OR client.expires_at > now())
 ORDER BY client.seen_at DESC LIMIT %(most)s

-- name: clients_of_host
-- Those of one host, by its number or its name, whenever they asked.
SELECT client.id FROM client
 WHERE client.host IN (
       SELECT host.id FROM host
        WHERE host.id::text = %(host)s OR host.ad->>'Name' = %(host)s
              AND (%(mine)s::int IS NULL OR host.owner = %(mine)s))
   AND client.revoked_at IS NULL AND (client.expires_at IS NULL OR client.expires_at > now())
 ORDER BY client.seen_at DESC LIMIT %(most)s

-- name: hosts_seen
-- Some clients and their hosts, the latest first, without those that have ended. Whose host it is
-- stays hidden from others, as in the list of hosts: `mine` is null for an operator.
WITH latest AS MATERIALIZED (
    SELECT client.id, client.host, client.owner, client.accepts, client.trusts, client.protocol,
           client.grid, client.dedicated, client.silent_since, client.seen_at
      FROM client
     WHERE client.id = ANY(%(clients)s) AND client.revoked_at IS NULL
       AND (client.expires_at IS NULL OR client.expires_at > now())
)
SELECT host.id AS host, host.ad, owner.name AS owner_name, client.owner, client.accepts,
       client.trusts, client.protocol, client.grid, client.dedicated, host.venue, host.error_rate,
       CASE WHEN host.jobs_day = now()::date THEN host.jobs_today ELSE 0 END AS jobs_today,
       host.mean_turnaround,
       host.recent_cpu * exp(greatest(-600, extract(epoch FROM host.recent_at - now()) / 86400))
           AS recent_cpu,
       CASE WHEN %(mine)s::int IS NULL OR host.owner = %(mine)s
            THEN coalesce(host.ad->>'Name', 'host ' || host.id) END AS name,
       client.silent_since IS NOT NULL OR client.seen_at < now() - interval '10 minutes' AS silent,
       (SELECT count(*) FROM lease WHERE lease.client = client.id) AS running,
       ARRAY(SELECT unnest(marks) FROM client_cache k WHERE k.client = client.id) AS cached
  FROM latest AS client
 CROSS JOIN LATERAL (  -- OFFSET: these few by their index, however cheap a look at all may seem
    SELECT * FROM host WHERE host.id = client.host OFFSET 0
 ) AS host
  JOIN owner ON owner.id = client.owner
 ORDER BY client.seen_at DESC

-- name: queue
-- The Queue ad.
SELECT count(*) AS "BOTsInQueue",
       coalesce(sum(greatest(0, bot.size - count.first + count.queued)), 0)::bigint
           AS "JobsInQueue"
  FROM bot CROSS JOIN LATERAL bot_count(bot.id) AS count
 WHERE bot.state = 'running' AND bot.held IS NULL

-- name: waiting_kinds
SELECT k.kind, count(*) AS copies
  FROM requeue q JOIN job_kind k USING (bot, seq) WHERE q.bot = %(bot)s
 GROUP BY k.kind ORDER BY copies DESC, kind LIMIT 20

-- name: silent_hosts
-- Which silent hosts have jobs of a BOT that nobody else holds.
SELECT host.id,
       CASE WHEN %(mine)s::int IS NULL OR host.owner = %(mine)s
            THEN coalesce(host.ad->>'Name', 'host ' || host.id) END AS name,
       count(DISTINCT lease.seq) AS jobs,
       extract(epoch FROM now() - max(client.seen_at))::float8 AS silent_seconds
  FROM client JOIN lease ON lease.client = client.id AND lease.bot = %(bot)s
  JOIN host ON host.id = client.host
 WHERE client.silent_since IS NOT NULL
   AND NOT EXISTS (
       SELECT FROM lease other JOIN client holder ON holder.id = other.client
        WHERE (other.bot, other.seq) = (lease.bot, lease.seq) AND holder.silent_since IS NULL)
 GROUP BY host.id ORDER BY jobs DESC, host.id LIMIT 20

-- name: rivals
-- Other BOTs that wait to be sent, as `wants` gives them.
SELECT bot.id, bot.name, owner.name AS owner_name, bot.owner, bot.signature IS NOT NULL AS signed,
       bot.owner_signature IS NOT NULL AS owner_signed,
       bot.boinc IS NOT NULL AS signed_for_boinc, bot.boinc_unsuitable,
       bot.suspended, bot.owner_storage IS NOT NULL AS has_storage,
       bot.manifest, bot.policy, bot.size, bot.done, bot.failed, bot.tail,
       extract(epoch FROM bot.created_at)::float AS created_at, bot.policy_version,
       bot.turnaround_sum / nullif(bot.turnaround_n, 0) AS mean_turnaround,
       greatest(0, bot.size - count.first + count.queued) AS unsent,
       (SELECT count(*) FROM lease WHERE lease.bot = bot.id) AS running
  FROM bot JOIN owner ON owner.id = bot.owner CROSS JOIN LATERAL bot_count(bot.id) AS count
 WHERE bot.state = 'running' AND bot.suspended IS NULL AND bot.held IS NULL AND bot.id <> %(bot)s AND bot.size > count.first - count.queued
 ORDER BY bot.id LIMIT 50

-- name: wants
SELECT bot.id, bot.name, owner.name AS owner_name, bot.owner, bot.signature IS NOT NULL AS signed,
       bot.owner_signature IS NOT NULL AS owner_signed,
       bot.boinc IS NOT NULL AS signed_for_boinc, bot.boinc_unsuitable,
       bot.suspended, bot.owner_storage IS NOT NULL AS has_storage,
       bot.manifest, bot.policy, bot.size, bot.done, bot.failed, bot.tail,
       extract(epoch FROM bot.created_at)::float AS created_at, bot.policy_version,
       bot.turnaround_sum / nullif(bot.turnaround_n, 0) AS mean_turnaround,
       CASE WHEN bot.state IN ('open', 'running')
            THEN greatest(0, bot.size - count.first + count.queued) ELSE 0 END AS unsent,
       (SELECT count(*) FROM lease WHERE lease.bot = bot.id) - silent.replicas AS running
  FROM bot JOIN owner ON owner.id = bot.owner CROSS JOIN LATERAL bot_count(bot.id) AS count
 CROSS JOIN LATERAL silent_count(bot.id) AS silent
 WHERE bot.id = %(bot)s

-- name: keep_policy
-- The one that it was submitted with, before the first change.
WITH locked AS (
    SELECT id, policy, owner, created_at FROM bot WHERE id = %(bot)s FOR NO KEY UPDATE
)
INSERT INTO policy_version (bot, n, policy, changed_by, changed_at)
SELECT id, 1, policy, owner, created_at FROM locked
ON CONFLICT DO NOTHING

-- name: note_policy
INSERT INTO policy_version (bot, n, policy, changed_by)
SELECT bot.id, (SELECT max(v.n) + 1 FROM policy_version v WHERE v.bot = bot.id), bot.policy, %(by)s
  FROM bot WHERE bot.id = %(bot)s
   AND bot.policy <> (SELECT policy FROM policy_version v WHERE v.bot = bot.id ORDER BY n DESC LIMIT 1)

-- name: policies
SELECT v.n, v.policy, owner.name AS changed_by, v.changed_at
  FROM policy_version v JOIN owner ON owner.id = v.changed_by
 WHERE v.bot = %(bot)s
 UNION ALL
SELECT 1, bot.policy, owner.name, bot.created_at
  FROM bot JOIN owner ON owner.id = bot.owner
 WHERE bot.id = %(bot)s AND NOT EXISTS (SELECT FROM policy_version v WHERE v.bot = bot.id)
 ORDER BY n DESC LIMIT 100

-- name: progress
-- How far the jobs in progress are whose programs say so, and when the last of them ends if all go
-- on as they do.  One that has fallen back says nothing of that, nor one that crawls for decades.
SELECT avg(part)::float8 AS average, coalesce(sum(part), 0)::float8 AS jobs, max(left_seconds)::float8 AS left_seconds
  FROM (SELECT max(progress) AS part,
               min((1 - progress) * extract(epoch FROM now() - progress_since)
                   / (progress - progress_first))
                   FILTER (WHERE progress - progress_first >= 1e-6) AS left_seconds
          FROM lease WHERE bot = %(bot)s AND progress IS NOT NULL GROUP BY seq) AS of_job
