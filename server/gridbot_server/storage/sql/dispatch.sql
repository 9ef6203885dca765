-- name: bots
SELECT b.id, b.policy_version AS version, b.name, o.name AS owner, b.owner AS owner_id, o.share,
       b.policy, b.manifest, b.signature, b.owner_signature,
       b.signed_with, b.quorum, b.boinc IS NOT NULL AS is_for_stock,
       b.suspended IS NOT NULL AS is_suspended, b.assurance, b.program, b.round, b.first_round,
       (SELECT array_agg(seq) FROM known_answer k WHERE k.bot = b.id) AS known,
       g.id AS group_id, g.share AS group_share, b.owner_storage IS NOT NULL AS has_storage,
       b.trace, b.traced_jobs
  FROM bot b JOIN owner o ON o.id = b.owner LEFT JOIN bot_group g ON g.id = b.bot_group
 WHERE b.id = ANY(%(bots)s)

-- name: introductions
SELECT owner, introduced_by AS old, key AS new, signature FROM signing_key
 WHERE introduced_by IS NOT NULL AND owner = ANY(%(owners)s)
 UNION ALL
SELECT NULL, introduced_by, key, signature FROM project_key WHERE introduced_by IS NOT NULL

-- name: clients
-- Who asks, as it was before this request; from now on, as it is with it.  Locked in one order: a
-- request and its retry at another process take turns, without deadlock.
WITH found AS MATERIALIZED (
    SELECT c.*, x.seqno AS new_seqno, x.key AS new_key, x.contact
      FROM json_to_recordset(%(requests)s) AS x (
           hash text, seqno bigint, key text, contact float8)
      JOIN client c ON c.hash = decode(x.hash, 'hex')
     WHERE c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > now())
     ORDER BY c.id FOR NO KEY UPDATE OF c
), touched AS (
    UPDATE client c
       SET seqno = greatest(f.seqno, f.new_seqno), seen_at = now(),
           contact_seconds = f.contact, silent_since = NULL,
           session_at = coalesce(c.session_at, now()),
           last_key = CASE WHEN f.new_seqno > f.seqno THEN f.new_key ELSE f.last_key END
      FROM found f WHERE c.id = f.id
)
SELECT f.hash, f.id, f.host, f.owner, o.name AS owner_name, f.accepts, f.trusts, f.grid, f.dedicated, h.venue, f.seqno, f.last_key,
       h.error_rate, h.mean_turnaround,
       CASE WHEN h.jobs_day = now()::date THEN h.jobs_today ELSE 0 END AS jobs_today,
       h.recent_cpu * exp(greatest(-600, extract(epoch FROM h.recent_at - now())::float8 / 86400)) AS recent_cpu,
       h.width, h.crew, coalesce(w.width, 8) AS crew_width,
       o.preferences_version
  FROM found f JOIN host h ON h.id = f.host JOIN owner o ON o.id = f.owner
  LEFT JOIN crew w ON w.name = h.crew

-- name: uploaded
-- Which uploads that reports speak of have really arrived; none is replaced until they are ended.
SELECT o.bot, o.seq, o.replica, o.name, r.sha256
  FROM json_to_recordset(%(outputs)s) AS r (bot bigint, seq bigint, replica int, name text, sha256 text)
  JOIN output o ON (o.bot, o.seq, o.replica, o.name) = (r.bot, r.seq, r.replica, r.name)
 WHERE o.sha256 = decode(r.sha256, 'hex')
   FOR SHARE OF o

-- name: leases
SELECT client, bot, seq, replica, round, extract(epoch FROM deadline - now())::float8 AS seconds_left
  FROM lease WHERE client = ANY(%(clients)s::bigint[])

-- name: not_wanted
-- Of replicas that clients hold without a lease, those whose answer could no longer count.  What was
-- cancelled is not wanted even if its job was retried since.
SELECT r.bot, r.seq, r.replica
  FROM json_to_recordset(%(held)s) AS r (bot bigint, seq bigint, replica int)
  LEFT JOIN bot b ON b.id = r.bot
  LEFT JOIN outcome o ON (o.bot, o.seq) = (r.bot, r.seq)
 WHERE b.id IS NULL OR b.state <> 'running' OR o.bot IS NOT NULL
    OR EXISTS (SELECT FROM ended e
                WHERE (e.bot, e.seq, e.replica) = (r.bot, r.seq, r.replica) AND e.how = 'cancelled')

-- name: lock_hosts
-- Web processes that give copies to clients of one host take turns, so that `take_copies` sees
-- what the other gave.  Not the host's row: the transitioner holds those for long.
SELECT pg_advisory_xact_lock(host) FROM unnest(%(hosts)s::bigint[]) AS host

-- name: lock_crews
-- In one order for all; a statement of its own, because `unjudged` must see what others committed
-- while this one waited.
SELECT pg_advisory_xact_lock(1, name) FROM (
       SELECT DISTINCT hashtext(crew) AS name FROM unnest(%(crews)s::text[]) AS crew ORDER BY 1) AS crews

-- name: unjudged
-- What hosts and their crews have in progress or unjudged; nobody counts beyond what could matter.
SELECT x.client,
       (SELECT count(*) FROM (SELECT FROM unjudged u WHERE u.host = x.host LIMIT x.most) AS a)
           AS of_host,
       (SELECT count(*) FROM (SELECT FROM unjudged u WHERE u.crew = x.crew LIMIT x.most) AS a)
           AS of_crew
  FROM json_to_recordset(%(clients)s) AS x (client bigint, host bigint, crew text, most int)

-- name: add_unjudged
INSERT INTO unjudged (bot, seq, replica, host, crew)
SELECT bot, seq, replica, host, crew
  FROM json_to_recordset(%(replicas)s) AS x (
       bot bigint, seq bigint, replica int, host bigint, crew text)
ON CONFLICT DO NOTHING

-- name: coins
SELECT value FROM setting WHERE name = 'coins'

-- name: records
-- What hosts and crews have proven, by program.
SELECT who, program, streak, caught FROM track_record WHERE who = ANY(%(who)s)

-- name: release_copies
-- Refused, so their slots are freed; the feeder may put them in again, for another host.
UPDATE requeue q SET machine = NULL, claimed_until = NULL
  FROM (SELECT r.bot, r.seq, r.replica
          FROM json_to_recordset(%(copies)s) AS x (bot bigint, seq bigint, replica int)
          JOIN requeue r ON (r.bot, r.seq, r.replica) = (x.bot, x.seq, x.replica)
           FOR UPDATE OF r SKIP LOCKED) AS found
 WHERE (q.bot, q.seq, q.replica) = (found.bot, found.seq, found.replica)

-- name: describe_hosts
UPDATE host h SET ad = x.ad
  FROM json_to_recordset(%(hosts)s) AS x (id bigint, ad jsonb)
 WHERE h.id = x.id

-- name: epoch
SELECT value::bigint FROM setting WHERE name = 'epoch'

-- name: planner
-- For the connection of the host requests only: a few rows of big tables are touched through
-- their keys, while the planner expects 100 rows of every JSON document and would read it all.
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET plan_cache_mode = force_generic_plan; SET jit = off

-- name: bind_kinds
-- The first replica binds its job.
INSERT INTO job_kind (bot, seq, kind)
SELECT bot, seq, kind FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint, kind text)
ON CONFLICT DO NOTHING

-- name: begin_pause
-- In calling back, unless another web process began one.
UPDATE client SET called_back_at = now()
 WHERE id = %(client)s
   AND (called_back_at IS NULL OR called_back_at < now() - make_interval(secs => %(pause)s))
RETURNING id

-- name: tell_of_reports
NOTIFY gridbot_reports

-- name: note_progress
-- Locked in one order, as reports are.
WITH told AS MATERIALIZED (
    SELECT lease.bot, lease.seq, lease.replica, x.part
      FROM json_to_recordset(%(told)s) AS x (
           bot bigint, seq bigint, replica int, part real, client bigint)
      JOIN lease ON (lease.bot, lease.seq, lease.replica) = (x.bot, x.seq, x.replica)
     WHERE lease.client = x.client AND lease.progress IS DISTINCT FROM x.part
     ORDER BY lease.bot, lease.seq, lease.replica FOR NO KEY UPDATE OF lease
)
UPDATE lease SET progress = told.part, progress_first = coalesce(progress_first, told.part),
                 progress_since = coalesce(progress_since, now())
  FROM told
 WHERE (lease.bot, lease.seq, lease.replica) = (told.bot, told.seq, told.replica)

-- name: note_caches
-- Each client is in one batch at a time: its row of `client` is locked.
INSERT INTO client_cache (client, marks)
SELECT x.client, x.marks FROM json_to_recordset(%(told)s) AS x (client bigint, marks text[])
    ON CONFLICT (client) DO UPDATE SET marks = EXCLUDED.marks

-- name: caches
SELECT client, marks FROM client_cache WHERE client = ANY(%(clients)s)
