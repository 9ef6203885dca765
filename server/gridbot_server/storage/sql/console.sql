-- name: running
-- Replicas in progress, those sent first at the top; only these are looked at more closely.
WITH first AS MATERIALIZED (
    SELECT * FROM lease
     WHERE lease.bot = %(bot)s AND (%(seq)s::bigint IS NULL OR lease.seq = %(seq)s)
     ORDER BY lease.sent_at, lease.seq, lease.replica LIMIT %(limit)s
)
SELECT lease.seq, lease.replica, lease.why, host.id AS host,
       coalesce(host.ad->>'Name', 'host ' || host.id) AS host_name, client.grid,
       lease.sent_at, lease.deadline, client.silent_since IS NOT NULL AS is_silent,
       extract(epoch FROM now() - lease.sent_at)::float8 AS seconds,
       extract(epoch FROM now() - client.seen_at)::float8 AS seen_seconds,
       lease.progress::float8 AS progress
  FROM first AS lease JOIN client ON client.id = lease.client JOIN host ON host.id = client.host
 ORDER BY lease.sent_at, lease.seq, lease.replica

-- name: policy_changes
-- When the policy of a BOT was changed.
SELECT extract(epoch FROM changed_at)::float8 AS at FROM policy_version
 WHERE bot = %(bot)s AND n > 1 ORDER BY n DESC LIMIT 100

-- name: waiting_copies
-- Copies of the jobs that are left, which wait to be sent.
SELECT seq, why, pool, greatest(0, extract(epoch FROM not_before - now()))::float8 AS seconds
  FROM requeue WHERE bot = %(bot)s AND (%(seq)s::bigint IS NULL OR seq = %(seq)s)
 ORDER BY seq, replica LIMIT %(limit)s

-- name: job
SELECT job.args::text AS args, job.inputs::text AS inputs, outcome.canonical, outcome.reason,
       outcome.made_at
  FROM job LEFT JOIN outcome ON outcome.bot = job.bot AND outcome.seq = job.seq
 WHERE job.bot = %(bot)s AND job.seq = %(seq)s

-- name: outputs
-- Of the canonical replica of a job.
SELECT output.name, output.size, output.sha256
  FROM outcome JOIN output ON output.bot = outcome.bot AND output.seq = outcome.seq
                          AND output.replica = outcome.canonical
 WHERE outcome.bot = %(bot)s AND outcome.seq = %(seq)s ORDER BY output.name LIMIT 200

-- name: paces
-- Jobs per second over the last outcomes of each of some BOTs, as `rate` in bots.sql.
SELECT bot.id, (SELECT (count(*) / nullif(extract(epoch FROM now() - min(made_at)), 0))::float8
                  FROM (SELECT made_at FROM outcome WHERE outcome.bot = bot.id
                         ORDER BY n DESC LIMIT 500) AS recent) AS jobs_per_second
  FROM bot WHERE bot.id = ANY(%(bots)s)

-- name: machines
-- The latest client of each of these machines, and whether there is room for work of strangers.
SELECT DISTINCT ON (client.host) client.host, client.id AS client,
       extract(epoch FROM now() - client.seen_at)::float8 AS seen_seconds,
       (SELECT count(*) FROM unjudged WHERE unjudged.host = host.id) < host.width AS has_room
  FROM client JOIN host ON host.id = client.host
 WHERE client.host = ANY(%(hosts)s) AND client.owner = %(owner)s AND client.revoked_at IS NULL
   AND (client.expires_at IS NULL OR client.expires_at > now())
 ORDER BY client.host, client.seen_at DESC

-- name: leave
-- The clients of a machine of one's own, which is asked to lend itself no more.
SELECT client.id FROM client JOIN host ON host.id = client.host
 WHERE host.id = %(host)s AND host.owner = %(owner)s AND client.revoked_at IS NULL
 ORDER BY client.id FOR NO KEY UPDATE OF client

-- name: revoke_client
UPDATE client SET revoked_at = now() WHERE id = %(client)s AND revoked_at IS NULL

-- name: hosts_by_state
-- Clients that have not left, by grid; those unheard of for a day are not counted.
SELECT coalesce(client.grid, '') AS grid,
       count(*) FILTER (WHERE client.silent_since IS NULL
                          AND client.seen_at > now() - interval '10 minutes') AS active,
       count(*) FILTER (WHERE client.silent_since IS NOT NULL) AS silent,
       count(*) FILTER (WHERE client.silent_since IS NULL
                          AND client.seen_at <= now() - interval '10 minutes') AS away
  FROM client
 WHERE client.revoked_at IS NULL AND (client.expires_at IS NULL OR client.expires_at > now())
   AND client.seen_at > now() - interval '1 day'
 GROUP BY 1 ORDER BY 1

-- name: storage
SELECT pg_database_size(current_database()) AS database_bytes, count(*) AS files,
       coalesce(sum(size), 0)::bigint AS file_bytes
  FROM blob

-- name: backup
-- When the last backup was made, and where it was put.
SELECT (value::json->>'made_at')::timestamptz AS made_at, value::json->>'file' AS file
  FROM setting WHERE name = 'backup'

-- name: releases
-- Of the hosts of these clients.
SELECT coalesce(host.ad->>'ClientVersion', 'unknown') AS release, count(*) AS hosts
  FROM host WHERE host.id IN (SELECT client.host FROM client WHERE client.id = ANY(%(clients)s))
 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20

-- name: worst_hosts
-- Those whose replicas fail most often, among the machines that asked for work in the last day.
-- One that has done nothing yet has a rate of 0.1.
WITH worst AS MATERIALIZED (
    SELECT host.id FROM host
     WHERE host.error_rate > 0.1::real
       AND EXISTS (SELECT FROM client WHERE client.host = host.id AND client.revoked_at IS NULL
                      AND client.seen_at > now() - interval '1 day')
     ORDER BY host.error_rate DESC, host.id LIMIT %(limit)s
)
SELECT host.id, coalesce(host.ad->>'Name', 'host ' || host.id) AS name, owner.name AS owner,
       max(client.grid) AS grid, host.error_rate::float8 AS error_rate,
       max(client.failure) AS failure
  FROM worst JOIN host ON host.id = worst.id JOIN client ON client.host = host.id
  JOIN owner ON owner.id = host.owner
 WHERE client.seen_at > now() - interval '1 day' AND client.revoked_at IS NULL
 GROUP BY host.id, owner.name ORDER BY host.error_rate DESC, host.id

-- name: banned
SELECT host.id, coalesce(host.ad->>'Name', 'host ' || host.id) AS name, owner.name AS owner,
       host.banned_at, host.banned_why
  FROM host JOIN owner ON owner.id = host.owner
 WHERE host.banned_at IS NOT NULL ORDER BY host.banned_at DESC LIMIT %(limit)s

-- name: pilots
-- Pilots by grid: what the last day's did.
SELECT grid, sum(alive)::bigint AS alive, sum(silent)::bigint AS silent, count(pilot) AS seen,
       coalesce(sum(jobs), 0)::bigint AS jobs, coalesce(sum(failures), 0)::bigint AS failures,
       coalesce(sum(core_seconds), 0)::float8 AS core_seconds,
       coalesce(sum(extract(epoch FROM seconds)), 0)::float8 AS pilot_seconds
  FROM (SELECT grid, pilot, sum(jobs) AS jobs, sum(failures) AS failures,
               sum(core_seconds) AS core_seconds, sum(seen_at - created_at) AS seconds,
               count(*) FILTER (WHERE seen_at > now() - interval '10 minutes'
                                  AND revoked_at IS NULL AND expires_at > now()) AS alive,
               count(*) FILTER (WHERE silent_since IS NOT NULL) AS silent
          FROM client
         WHERE grid IS NOT NULL AND seen_at > now() - interval '1 day'
         GROUP BY grid, pilot) AS of_pilots
 GROUP BY grid ORDER BY grid

-- name: refusals
-- Why grids send no pilots for BOTs, as constructors said within 15 minutes.
SELECT bot.id AS bot, bot.name, said.key AS grid, said.value AS why
  FROM refusals r, jsonb_each(r.bots) AS of_bot, jsonb_each_text(of_bot.value) AS said, bot
 WHERE r.said_at > now() - interval '15 minutes' AND bot.id::text = of_bot.key
 ORDER BY bot.id, said.key LIMIT %(limit)s

-- name: project
-- What everybody may know.
SELECT (SELECT count(*) FROM bot WHERE state = 'running' AND deleted_at IS NULL) AS bots_running,
       (SELECT coalesce(sum(done), 0)::bigint FROM bot WHERE deleted_at IS NULL) AS jobs_done,
       (SELECT coalesce(sum(size - done - failed), 0)::bigint FROM bot WHERE state = 'running') AS jobs_left,
       (SELECT count(*) FROM client WHERE seen_at > now() - interval '10 minutes'
           AND revoked_at IS NULL) AS clients_active,
       (SELECT coalesce(sum(total), 0) FROM volunteer)::float8 AS credit

-- name: leaders
-- Who agreed to be named.
SELECT coalesce(b.name, o.name) AS name, v.total::float8 AS credit,
       average_credit(v.average, v.averaged_at)::float8 AS recent_credit, t.name AS team
  FROM volunteer v JOIN owner o ON o.id = v.owner LEFT JOIN boinc_account b ON b.owner = v.owner
  LEFT JOIN team t ON t.id = v.team
 WHERE v.is_public AND v.total > 0 ORDER BY v.total DESC, v.owner LIMIT %(limit)s
