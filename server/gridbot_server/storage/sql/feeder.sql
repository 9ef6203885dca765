-- name: bots
-- A growing BOT whose jobs are all finished waits for further ones: dispatch knows nothing of it.
-- Nor of one whose gangs gathered in vain just now.
SELECT b.id AS bot, b.policy_version AS version, b.owner, b.size,
       b.size - s.first AS fresh_unsent, greatest(0, s.queued) AS copies_unsent,
       greatest(0, s.sent - s.back) AS running, b.done, b.failed, b.tail,
       extract(epoch FROM b.created_at)::float8 AS created_at,
       CASE WHEN b.turnaround_n > 0 THEN b.turnaround_sum / b.turnaround_n END AS mean_turnaround,
       known_run(b.turnaround_n, b.cut_off, b.usual_seconds) AS usual_seconds, b.fed, b.tail_threshold AS threshold, b.tail_sticky AS sticky, b.growing,
       b.jobs_cancelled > 0 OR b.reused > 0 AS has_cancelled, b.together,
       (b.signature IS NOT NULL OR b.boinc IS NOT NULL) AND (b.assurance IS NOT NULL OR b.quorum > 1)
           AS is_assured,
       encode(sha256(convert_to(b.manifest, 'UTF8')), 'hex') AS manifest_id, b.first_round
  FROM bot b
 CROSS JOIN LATERAL bot_count(b.id) AS s
 WHERE b.state = 'running' AND b.held IS NULL AND NOT b.waits_for_signature
   AND NOT (b.growing AND b.done + b.failed >= b.size)
   AND (b.together = 1 OR NOT EXISTS (
        SELECT FROM gang_rest r WHERE r.bot = b.id AND r.rests_until > now()))
   AND (%(only)s::bigint[] IS NULL OR b.id = ANY(%(only)s::bigint[]))
 ORDER BY b.id LIMIT %(most)s

-- name: set_tail
UPDATE bot SET tail = %(tail)s,
       tail_since = CASE WHEN %(tail)s THEN coalesce(tail_since, now()) END
 WHERE id = ANY(%(bots)s)

-- name: clients_active
SELECT count(*) FROM client WHERE seen_at > now() - interval '10 minutes'

-- name: electors
-- Crews that ask for work, with one of those who answer for them, and whether all of their clients
-- came just now.
SELECT h.crew, min(h.owner) AS owner,
       bool_and(c.created_at > now() - make_interval(secs => %(new_seconds)s)) AS is_new
  FROM client c JOIN host h ON h.id = c.host
 WHERE c.seen_at > now() - interval '10 minutes' AND c.seqno >= 0 AND c.revoked_at IS NULL
 GROUP BY h.crew

-- name: workers
-- Crews that were given jobs of a BOT, as far as they are in progress or unjudged.
SELECT DISTINCT crew FROM unjudged WHERE bot = %(bot)s

-- name: pause
-- Seconds between two requests for work of a usual host: so long as there were between those that it
-- made, or one job after the other on each core.  Medians, so that no few hosts decide it.
SELECT greatest(
           percentile_cont(0.5) WITHIN GROUP (
               ORDER BY extract(epoch FROM c.seen_at - c.created_at)::float8 / greatest(1, c.seqno)),
           percentile_cont(0.5) WITHIN GROUP (
               ORDER BY h.mean_turnaround / greatest(
                   1, CASE WHEN jsonb_typeof(h.ad->'NumCpus') = 'number'
                           THEN (h.ad->'NumCpus')::float8 END)),
           0)::float8
  FROM client c JOIN host h ON h.id = c.host
 WHERE c.seen_at > now() - interval '10 minutes' AND c.seqno >= 0

-- name: database
SELECT value FROM setting WHERE name = 'database'

-- name: renew_ranges
-- Our ranges stay ours; those of a machine that stopped renewing become ours.  Its buffer may still
-- have their jobs, and its web processes send them: so nobody gives them back from then on.
WITH left_over AS MATERIALIZED (
    SELECT bot, max(hi) AS upto FROM feed_range
     WHERE machine <> %(machine)s AND expires_at < now() GROUP BY bot
), locked AS MATERIALIZED (
    SELECT b.id, l.upto FROM bot b JOIN left_over l ON l.bot = b.id
     WHERE b.state = 'running' AND b.gathered < l.upto
     ORDER BY b.id FOR NO KEY UPDATE OF b
), kept AS (
    UPDATE bot b SET gathered = locked.upto FROM locked WHERE b.id = locked.id
)
UPDATE feed_range f SET machine = %(machine)s, expires_at = now() + %(lifetime)s
  FROM bot b
 WHERE b.id = f.bot AND b.state = 'running'
   AND (f.machine = %(machine)s OR f.expires_at < now())
RETURNING f.bot, f.lo, f.hi

-- name: drop_idle_ranges
DELETE FROM feed_range f USING bot b
 WHERE b.id = f.bot
   AND (b.state IN ('done', 'cancelled') OR b.growing AND b.done + b.failed >= b.size)

-- name: claim_ranges
WITH want AS (
    SELECT * FROM json_to_recordset(%(claims)s) AS r (bot bigint, jobs bigint)
), old AS (
    SELECT b.id, b.fed, least(b.fed + want.jobs, b.size) AS upto
      FROM bot b JOIN want ON want.bot = b.id
     WHERE b.state = 'running' AND b.fed < b.size
     ORDER BY b.id FOR NO KEY UPDATE OF b
), moved AS (
    UPDATE bot b SET fed = old.upto FROM old WHERE b.id = old.id
)
INSERT INTO feed_range (bot, lo, hi, machine, expires_at)
SELECT id, fed, upto, %(machine)s, now() + %(lifetime)s FROM old
RETURNING bot, lo, hi

-- name: give_back_jobs
-- What was claimed last of a BOT can be claimed again, unless somebody claimed more meanwhile, or
-- may have it without a claim (`claim_gathering`).  Not what was sent: a slot is ready again when the
-- answer to the commit of its lease was lost.
WITH given AS (
    SELECT * FROM json_to_recordset(%(given)s) AS r (bot bigint, fed bigint, upto bigint)
), moved AS (
    UPDATE bot b SET fed = greatest(
           g.upto, b.gathered,
           (SELECT max(seq) + 1 FROM lease WHERE bot = g.bot AND seq >= g.upto AND seq < g.fed),
           (SELECT max(seq) + 1 FROM ended WHERE bot = g.bot AND seq >= g.upto AND seq < g.fed))
      FROM given g
     WHERE b.id = g.bot AND b.fed = g.fed
       AND NOT EXISTS (SELECT FROM feed_range f WHERE f.bot = b.id AND f.hi > g.upto
                          AND f.machine <> %(machine)s)
    RETURNING b.id, b.fed AS upto
), dropped AS (
    DELETE FROM feed_range f USING moved m WHERE f.bot = m.id AND f.lo >= m.upto
)
UPDATE feed_range f SET hi = m.upto
  FROM moved m WHERE f.bot = m.id AND f.lo < m.upto AND f.hi > m.upto

-- name: range_jobs
SELECT j.bot, j.seq, j.args::text AS args, coalesce(j.inputs, '[]')::text AS inputs, '' AS proof
  FROM job j WHERE j.bot = %(bot)s AND j.seq >= %(lo)s AND j.seq < %(hi)s
 ORDER BY j.seq

-- name: unsent_jobs
-- Jobs of a range of which no copy was ever sent or queued: what a crash left between the claim
-- and the buffer, or what a dead machine had in its own.  The numbers of the others are hashed:
-- anti-joins of young tables, which were never analysed, become nested loops over the range.
WITH seen AS MATERIALIZED (
    SELECT seq FROM lease WHERE bot = %(bot)s AND seq >= %(lo)s AND seq < %(hi)s
    UNION ALL
    SELECT seq FROM ended WHERE bot = %(bot)s AND seq >= %(lo)s AND seq < %(hi)s
    UNION ALL
    SELECT seq FROM requeue WHERE bot = %(bot)s AND seq >= %(lo)s AND seq < %(hi)s
    UNION ALL
    SELECT seq FROM outcome WHERE bot = %(bot)s AND seq >= %(lo)s AND seq < %(hi)s
)
SELECT j.bot, j.seq, j.args::text AS args, coalesce(j.inputs, '[]')::text AS inputs, '' AS proof
  FROM job j
 WHERE j.bot = %(bot)s AND j.seq >= %(lo)s AND j.seq < %(hi)s
   AND j.seq NOT IN (SELECT seq FROM seen)
 ORDER BY j.seq LIMIT %(most)s

-- name: drop_sent_ranges
-- Ranges that have as many jobs as were sent, queued or decided: nearly always all of these.
DELETE FROM feed_range f
 USING json_to_recordset(%(ranges)s) AS r (bot bigint, lo bigint, hi bigint)
 WHERE f.bot = r.bot AND f.lo = r.lo AND f.machine = %(machine)s
   AND r.hi - r.lo <= (
       SELECT count(*)
         FROM (SELECT seq FROM lease WHERE bot = r.bot AND seq >= r.lo AND seq < r.hi
               UNION
               SELECT seq FROM ended WHERE bot = r.bot AND seq >= r.lo AND seq < r.hi
               UNION
               SELECT seq FROM requeue WHERE bot = r.bot AND seq >= r.lo AND seq < r.hi
               UNION
               SELECT seq FROM outcome WHERE bot = r.bot AND seq >= r.lo AND seq < r.hi) AS seen)
RETURNING f.bot, f.lo, f.hi

-- name: drop_range
DELETE FROM feed_range
 WHERE bot = %(bot)s AND lo = %(lo)s AND machine = %(machine)s

-- name: claim_copies
-- Found before any is changed: looked for again at each row of a join, copies that are locked by now
-- are skipped, and others come in their place.
WITH found AS MATERIALIZED (
    SELECT c.* FROM json_to_recordset(%(claims)s) AS wanted (bot bigint, most int)
     CROSS JOIN LATERAL (
           SELECT r.bot, r.seq, r.replica FROM requeue r
            WHERE r.bot = wanted.bot AND r.not_before <= now()
              AND (r.machine IS NULL OR r.claimed_until < now())
            ORDER BY r.prio DESC, r.not_before LIMIT wanted.most
              FOR UPDATE SKIP LOCKED) AS c
)
UPDATE requeue q SET machine = %(machine)s, claimed_until = now() + %(lifetime)s
  FROM found
 WHERE (q.bot, q.seq, q.replica) = (found.bot, found.seq, found.replica)
RETURNING q.bot, q.seq, q.replica, q.round, q.why, q.pool, q.vain

-- name: claim_these
-- Whoever has claimed them: their gangs gather here, too.
WITH found AS MATERIALIZED (
    SELECT r.bot, r.seq, r.replica
      FROM json_to_recordset(%(copies)s) AS x (bot bigint, seq bigint, replica int)
      JOIN requeue r ON (r.bot, r.seq, r.replica) = (x.bot, x.seq, x.replica)
       FOR UPDATE OF r SKIP LOCKED
)
UPDATE requeue q SET machine = %(machine)s, claimed_until = now() + %(lifetime)s
  FROM found
 WHERE (q.bot, q.seq, q.replica) = (found.bot, found.seq, found.replica)
RETURNING q.bot, q.seq, q.replica, q.round, q.why, q.pool, q.vain

-- name: unclaim_copies
UPDATE requeue q SET machine = NULL, claimed_until = NULL, vain = q.vain + x.vain
  FROM json_to_recordset(%(copies)s) AS x (bot bigint, seq bigint, replica int, vain int)
 WHERE (q.bot, q.seq, q.replica) = (x.bot, x.seq, x.replica) AND q.machine = %(machine)s

-- name: unclaim_all
UPDATE requeue SET machine = NULL, claimed_until = NULL WHERE machine = %(machine)s

-- name: was_sent
SELECT l.bot, l.seq, l.replica FROM lease l
  JOIN json_to_recordset(%(copies)s) AS x (bot bigint, seq bigint, replica int)
    ON (l.bot, l.seq, l.replica) = (x.bot, x.seq, x.replica)
 UNION ALL
SELECT e.bot, e.seq, e.replica FROM ended e
  JOIN json_to_recordset(%(copies)s) AS x (bot bigint, seq bigint, replica int)
    ON (e.bot, e.seq, e.replica) = (x.bot, x.seq, x.replica)

-- name: backend_lives
SELECT 1 FROM pg_stat_activity WHERE application_name = %(name)s LIMIT 1

-- name: planner
-- See dispatch.sql: keys lead to the few rows that are wanted, whatever the statistics say.
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off

-- name: listen
LISTEN gridbot_jobs
