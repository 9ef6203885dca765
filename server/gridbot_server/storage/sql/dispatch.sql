-- name: bots
SELECT b.id, b.policy_version, b.name, o.name, o.share, b.policy, b.manifest, b.signature, b.quorum,
       b.boinc IS NOT NULL
  FROM bot b JOIN owner o ON o.id = b.owner
 WHERE b.id = ANY(%(bots)s)

-- name: clients
-- Who asks, as it was before this request; from now on, as it is with it.  Locked in one order: a
-- request and its retry at another process take turns, without deadlock.
WITH found AS MATERIALIZED (
    SELECT c.*, x.seqno AS new_seqno, x.key AS new_key
      FROM json_to_recordset(%(requests)s) AS x (hash text, seqno bigint, key text)
      JOIN client c ON c.hash = decode(x.hash, 'hex')
     WHERE c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > now())
     ORDER BY c.id FOR NO KEY UPDATE OF c
), touched AS (
    UPDATE client c
       SET seqno = greatest(f.seqno, f.new_seqno), seen_at = now(),
           last_key = CASE WHEN f.new_seqno > f.seqno THEN f.new_key ELSE f.last_key END
      FROM found f WHERE c.id = f.id
)
SELECT f.hash, f.id, f.host, f.owner, o.name, f.accepts, f.grid, f.dedicated, h.venue, f.seqno, f.last_key,
       h.error_rate, h.mean_turnaround,
       CASE WHEN h.jobs_day = current_date THEN h.jobs_today ELSE 0 END,
       h.recent_cpu * exp(greatest(-600, extract(epoch FROM h.recent_at - now()) / 86400))
  FROM found f JOIN host h ON h.id = f.host JOIN owner o ON o.id = f.owner

-- name: uploaded
-- Which uploads that reports speak of have really arrived; none is replaced until they are ended.
SELECT o.bot, o.seq, o.replica, o.name, r.sha256
  FROM json_to_recordset(%(outputs)s) AS r (bot bigint, seq bigint, replica int, name text, sha256 text)
  JOIN output o ON (o.bot, o.seq, o.replica, o.name) = (r.bot, r.seq, r.replica, r.name)
 WHERE o.sha256 = decode(r.sha256, 'hex')
   FOR SHARE OF o

-- name: end_leases
-- Guarded by the lease itself: a repeat or a forgery finds none and changes nothing.  The client is
-- compared so that no index serves it: through that, each report would look at all its leases.
WITH report AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(reports)s) AS r (
        client bigint, bot bigint, seq bigint, replica int, how text, reason text, exit_code int,
        cpu_seconds real, wall_seconds real, digest text, stdout text, stderr text, outputs json)
), gone AS (
    DELETE FROM lease l USING report r
     WHERE (l.bot, l.seq, l.replica) = (r.bot, r.seq, r.replica)
       AND l.client IS NOT DISTINCT FROM r.client
    RETURNING l.*, r.how, r.reason, r.exit_code, r.cpu_seconds, r.wall_seconds, r.digest,
              r.stdout, r.stderr, r.outputs
), put AS (
    INSERT INTO ended (bot, seq, replica, round, why, how, reason, client, host, owner, sent_at,
                       exit_code, cpu_seconds, wall_seconds, digest, stdout, stderr)
    SELECT bot, seq, replica, round, why, how, reason, client, host, owner, sent_at,
           exit_code, cpu_seconds, wall_seconds, decode(digest, 'hex'), stdout, stderr
      FROM gone
), woken AS (
    INSERT INTO pending SELECT bot, seq FROM gone
), kept AS (
    INSERT INTO output (bot, seq, replica, name, sha256, size, content)
    SELECT bot, seq, replica, o.name, decode(o.sha256, 'hex'), o.size, decode(o.content, 'base64')
      FROM gone, json_to_recordset(outputs) AS o (
           name text, sha256 text, size bigint, content text)
    ON CONFLICT (bot, seq, replica, name)
    DO UPDATE SET sha256 = excluded.sha256, size = excluded.size, content = excluded.content
)
SELECT bot, seq, replica, client FROM gone

-- name: take_late
-- A late answer is an answer: the success of an expired replica is taken, once.  A statement of
-- its own, after `end_leases`: that one may have waited for the very transaction that expired the
-- lease, whose row of `ended` it cannot see.
WITH late AS (
    UPDATE ended e
       SET how = 'success', reason = '', ended_at = now(), exit_code = r.exit_code,
           cpu_seconds = r.cpu_seconds, wall_seconds = r.wall_seconds,
           digest = decode(r.digest, 'hex'), stdout = r.stdout, stderr = r.stderr, valid = NULL
      FROM json_to_recordset(%(reports)s) AS r (
           client bigint, bot bigint, seq bigint, replica int, exit_code int, cpu_seconds real,
           wall_seconds real, digest text, stdout text, stderr text, outputs json)
     WHERE (e.bot, e.seq, e.replica) = (r.bot, r.seq, r.replica) AND e.client = r.client
       AND e.how = 'expired'
    RETURNING e.bot, e.seq, e.replica, e.client, r.outputs
), woken AS (
    INSERT INTO pending SELECT bot, seq FROM late
), kept AS (
    INSERT INTO output (bot, seq, replica, name, sha256, size, content)
    SELECT bot, seq, replica, o.name, decode(o.sha256, 'hex'), o.size, decode(o.content, 'base64')
      FROM late, json_to_recordset(outputs) AS o (
           name text, sha256 text, size bigint, content text)
    ON CONFLICT (bot, seq, replica, name)
    DO UPDATE SET sha256 = excluded.sha256, size = excluded.size, content = excluded.content
)
SELECT bot, seq, replica, client FROM late

-- name: leases
SELECT client, bot, seq, replica, extract(epoch FROM deadline - now())::float8
  FROM lease WHERE client = ANY(%(clients)s::bigint[])

-- name: not_wanted
-- Of replicas that clients hold without a lease, those whose answer could no longer count.
SELECT r.bot, r.seq, r.replica
  FROM json_to_recordset(%(held)s) AS r (bot bigint, seq bigint, replica int)
  LEFT JOIN bot b ON b.id = r.bot
  LEFT JOIN outcome o ON (o.bot, o.seq) = (r.bot, r.seq)
 WHERE b.id IS NULL OR b.state <> 'running' OR o.bot IS NOT NULL

-- name: lock_hosts
-- Web processes that give copies to clients of one host take turns, so that `take_copies` sees
-- what the other gave.  Not the host's row: the transitioner holds those for long.
SELECT pg_advisory_xact_lock(host) FROM unnest(%(hosts)s::bigint[]) AS host

-- name: take_copies
-- One copy never goes to a host that has, or had, another one that counts.  A copy that is locked
-- is being dropped: waiting for that while holding leases could be a deadlock.
WITH x AS (
    SELECT * FROM json_to_recordset(%(copies)s) AS r (
        bot bigint, seq bigint, replica int, host bigint, owner int, distinct_owners boolean)
), free AS (
    SELECT q.bot, q.seq, q.replica
      FROM x
      JOIN requeue q ON (q.bot, q.seq, q.replica) = (x.bot, x.seq, x.replica)
      JOIN bot b ON b.id = x.bot AND b.state = 'running'
     WHERE NOT EXISTS (
           SELECT FROM lease l WHERE (l.bot, l.seq) = (x.bot, x.seq)
              AND (l.host = x.host OR (x.distinct_owners AND l.owner = x.owner)))
       AND (b.quorum = 1 OR NOT EXISTS (
           SELECT FROM ended e WHERE (e.bot, e.seq) = (x.bot, x.seq) AND e.how = 'success'
              AND (e.host = x.host OR (x.distinct_owners AND e.owner = x.owner))))
       FOR UPDATE OF q SKIP LOCKED
)
DELETE FROM requeue q USING free
 WHERE (q.bot, q.seq, q.replica) = (free.bot, free.seq, free.replica)
RETURNING q.bot, q.seq, q.replica

-- name: release_copies
-- Refused, so their slots are freed; the feeder may put them in again, for another host.
UPDATE requeue q SET machine = NULL, claimed_until = NULL
  FROM (SELECT r.bot, r.seq, r.replica
          FROM json_to_recordset(%(copies)s) AS x (bot bigint, seq bigint, replica int)
          JOIN requeue r ON (r.bot, r.seq, r.replica) = (x.bot, x.seq, x.replica)
           FOR UPDATE OF r SKIP LOCKED) AS found
 WHERE (q.bot, q.seq, q.replica) = (found.bot, found.seq, found.replica)

-- name: add_leases
INSERT INTO lease (bot, seq, replica, round, why, client, host, owner, deadline, request_key)
SELECT x.bot, x.seq, x.replica, x.round, x.why, x.client, x.host, x.owner,
       now() + make_interval(secs => x.deadline_seconds), x.request_key
  FROM json_to_recordset(%(leases)s) AS x (
       bot bigint, seq bigint, replica int, round int, why text, client bigint, host bigint,
       owner int, deadline_seconds float8, request_key text)
  JOIN bot b ON b.id = x.bot AND b.state = 'running'
ON CONFLICT DO NOTHING
RETURNING bot, seq, replica

-- name: unlease_ended
-- What was sent and ended before loses its lease again.  A statement of its own: `add_leases` may
-- have waited for the report of the same replica, whose row of `ended` it could not see.
WITH over AS MATERIALIZED (
    SELECT e.bot, e.seq, e.replica
      FROM json_to_recordset(%(leases)s) AS x (bot bigint, seq bigint, replica int)
      JOIN ended e ON (e.bot, e.seq, e.replica) = (x.bot, x.seq, x.replica)
)
DELETE FROM lease l USING over
 WHERE (l.bot, l.seq, l.replica) = (over.bot, over.seq, over.replica)
RETURNING l.bot, l.seq, l.replica

-- name: add_quorum_copies
INSERT INTO requeue (bot, seq, replica, round, why)
SELECT x.bot, x.seq, copy, x.round, 'quorum'
  FROM json_to_recordset(%(leases)s) AS x (bot bigint, seq bigint, round int)
  JOIN bot b ON b.id = x.bot
 CROSS JOIN LATERAL generate_series(2, b.quorum) AS copy
ON CONFLICT DO NOTHING
RETURNING bot

-- name: describe_hosts
UPDATE host h SET ad = x.ad
  FROM json_to_recordset(%(hosts)s) AS x (id bigint, ad jsonb)
 WHERE h.id = x.id

-- name: jobs
SELECT j.bot, j.seq, j.args::text, coalesce(j.inputs, '[]')::text
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN job j ON (j.bot, j.seq) = (x.bot, x.seq)

-- name: epoch
SELECT value::bigint FROM setting WHERE name = 'epoch'

-- name: planner
-- For the connection of the host requests only: a few rows of big tables are touched through
-- their keys, while the planner expects 100 rows of every JSON document and would read it all.
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET plan_cache_mode = force_generic_plan; SET jit = off
