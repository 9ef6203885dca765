-- Every statement that moves a replica from one state to another: `states.py` says which event uses
-- which, and hands over the states in %(how)s, %(ends)s, %(before)s and %(after)s.

-- name: add_copies
-- A replica that was sent already, or waits to be, is none that could be made.
INSERT INTO requeue (bot, seq, replica, round, why, prio, pool)
SELECT x.bot, x.seq, x.replica, x.round, x.why, x.prio, x.pool
  FROM json_to_recordset(%(copies)s) AS x (
       bot bigint, seq bigint, replica int, round int, why text, prio int, pool text)
 WHERE x.replica > 1
   AND NOT EXISTS (
       SELECT FROM lease l WHERE (l.bot, l.seq, l.replica) = (x.bot, x.seq, x.replica))
   AND NOT EXISTS (
       SELECT FROM ended e WHERE (e.bot, e.seq, e.replica) = (x.bot, x.seq, x.replica))
ON CONFLICT DO NOTHING
RETURNING bot

-- name: add_quorum_copies
INSERT INTO requeue (bot, seq, replica, round, why)
SELECT x.bot, x.seq, copy, x.round, 'quorum'
  FROM json_to_recordset(%(leases)s) AS x (bot bigint, seq bigint, round int, more int)
 CROSS JOIN LATERAL generate_series(2, 1 + x.more) AS copy
 WHERE NOT EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq, l.replica) = (x.bot, x.seq, copy))
   AND NOT EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq, e.replica) = (x.bot, x.seq, copy))
ON CONFLICT DO NOTHING
RETURNING bot

-- name: requeue_failed
-- A failed job's outcome becomes an unsent replica of the next round; numbers never restart.
-- A job that was cancelled stays so.
WITH gone AS (
    DELETE FROM outcome WHERE bot = %(bot)s AND canonical IS NULL AND reason <> 'cancelled'
       AND (%(jobs)s::bigint[] IS NULL OR seq = ANY(%(jobs)s::bigint[]))
    RETURNING seq
), numbered AS (
    SELECT seq, greatest(
        (SELECT max(replica) FROM lease WHERE bot = %(bot)s AND lease.seq = gone.seq),
        (SELECT max(replica) FROM ended WHERE bot = %(bot)s AND ended.seq = gone.seq),
        (SELECT max(replica) FROM requeue WHERE bot = %(bot)s AND requeue.seq = gone.seq), -1
    ) + 1 AS replica FROM gone
)
INSERT INTO requeue (bot, seq, replica, round, why)
SELECT %(bot)s, seq, replica, (SELECT round + 1 FROM bot WHERE id = %(bot)s), 'retry'
  FROM numbered
RETURNING seq

-- name: take_copies
-- One copy never goes to a host that has, or had, another one that counts; what a silent client
-- has does not count.  A copy that is locked is being dropped: waiting for that while holding leases
-- could be a deadlock.
WITH x AS (
    SELECT * FROM json_to_recordset(%(copies)s) AS r (
        bot bigint, seq bigint, replica int, host bigint, owner int, distinct_owners boolean)
), free AS (
    SELECT q.bot, q.seq, q.replica
      FROM x
      JOIN requeue q ON (q.bot, q.seq, q.replica) = (x.bot, x.seq, x.replica)
      JOIN bot b ON b.id = x.bot AND b.state = 'running' AND b.held IS NULL
     WHERE NOT EXISTS (
           SELECT FROM lease l JOIN client c ON c.id = l.client
            WHERE (l.bot, l.seq) = (x.bot, x.seq) AND c.silent_since IS NULL
              AND (l.host = x.host OR (x.distinct_owners AND l.owner = x.owner)))
       AND (b.quorum = 1 AND b.assurance IS NULL OR NOT EXISTS (
           SELECT FROM ended e WHERE (e.bot, e.seq) = (x.bot, x.seq) AND e.how = 'success'
              AND (e.host = x.host OR (x.distinct_owners AND e.owner = x.owner))))
       FOR UPDATE OF q SKIP LOCKED
)
DELETE FROM requeue q USING free
 WHERE (q.bot, q.seq, q.replica) = (free.bot, free.seq, free.replica)
RETURNING q.bot, q.seq, q.replica

-- name: add_leases
-- Gives those that were not added: nearly always none.
WITH x AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(leases)s) AS r (
        bot bigint, seq bigint, replica int, round int, why text, client bigint, host bigint,
        owner int, deadline_seconds float8, request_key text)
), added AS (
    INSERT INTO lease (bot, seq, replica, round, why, client, host, owner, deadline, request_key)
    SELECT x.bot, x.seq, x.replica, x.round, x.why, x.client, x.host, x.owner,
           now() + make_interval(secs => x.deadline_seconds), x.request_key
      FROM x JOIN bot b ON b.id = x.bot AND b.state = 'running' AND b.held IS NULL
           AND x.seq BETWEEN 0 AND b.size - 1
    ON CONFLICT DO NOTHING
    RETURNING bot, seq, replica
)
SELECT bot, seq, replica FROM x
 WHERE (SELECT count(*) FROM added) < (SELECT count(*) FROM x)
EXCEPT
SELECT bot, seq, replica FROM added

-- name: withhold
-- As `add_leases`, also while the BOT is held: its jobs are to stay unsent when it is released.
INSERT INTO lease (bot, seq, replica, round, why, client, host, owner, deadline, request_key)
SELECT b.id, x.seq, 1, 0, 'first', %(client)s, %(host)s, b.owner, now(), ''
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN bot b ON b.id = x.bot AND b.state = 'running' AND x.seq BETWEEN 0 AND b.size - 1
 ORDER BY x.bot, x.seq
ON CONFLICT DO NOTHING
RETURNING bot, seq, replica

-- name: unlease_ended
-- What was sent and ended before loses its lease again.  A statement of its own: `add_leases` may
-- have waited for the report of the same replica, whose row of `ended` it could not see.
WITH over AS MATERIALIZED (
    SELECT e.bot, e.seq, e.replica
      FROM unnest(%(bots)s::bigint[], %(seqs)s::bigint[], %(replicas)s::int[])
           AS x (bot, seq, replica)
      JOIN ended e ON (e.bot, e.seq, e.replica) = (x.bot, x.seq, x.replica)
)
DELETE FROM lease l USING over
 WHERE (l.bot, l.seq, l.replica) = (over.bot, over.seq, over.replica)
RETURNING l.bot, l.seq, l.replica

-- name: end_leases
-- A compare-and-swap on the lease: a repeat or a forgery finds none and changes nothing.  The client is
-- compared so that no index serves it: through that, each report would look at all its leases.
-- Gives the reports that ended nothing: nearly always none.
WITH report AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(reports)s) AS r (
        client bigint, bot bigint, seq bigint, replica int, how text, reason text, exit_code int,
        cpu_seconds real, wall_seconds real, digest text, stdout text, stderr text, outputs json)
), gone AS (
    DELETE FROM lease l USING report r
     WHERE (l.bot, l.seq, l.replica) = (r.bot, r.seq, r.replica)
       AND l.client IS NOT DISTINCT FROM r.client AND r.how = ANY(%(ends)s)
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
SELECT bot, seq, replica, client FROM report
 WHERE (SELECT count(*) FROM gone) < (SELECT count(*) FROM report)
EXCEPT
SELECT bot, seq, replica, client FROM gone

-- name: take_late
-- A late answer is an answer: the success of an expired replica is taken, once.  A statement of
-- its own, after `end_leases`: that one may have waited for the very transaction that expired the
-- lease, whose row of `ended` it cannot see.
WITH late AS (
    UPDATE ended e
       SET how = %(after)s, reason = '', ended_at = now(), exit_code = r.exit_code,
           cpu_seconds = r.cpu_seconds, wall_seconds = r.wall_seconds,
           digest = decode(r.digest, 'hex'), stdout = r.stdout, stderr = r.stderr, valid = NULL
      FROM json_to_recordset(%(reports)s) AS r (
           client bigint, bot bigint, seq bigint, replica int, exit_code int, cpu_seconds real,
           wall_seconds real, digest text, stdout text, stderr text, outputs json)
     WHERE (e.bot, e.seq, e.replica) = (r.bot, r.seq, r.replica) AND e.client = r.client
       AND e.how = ANY(%(before)s)
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

-- name: deadline_passed
-- Deadline cycle, paper Algorithm 2: the job goes back, the late host may still answer.
WITH gone AS (
    DELETE FROM lease WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM lease WHERE deadline < now()
         ORDER BY deadline LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING lease
)
SELECT back.* FROM (SELECT array_agg(lease) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: pilot_ended
-- The grid says that these pilots are gone: what they ran goes back now, not at its deadline.
-- Should one of them answer all the same, that is a late answer.
WITH gone AS (
    DELETE FROM lease l USING client c
     WHERE c.id = l.client AND c.grid = %(grid)s AND c.pilot = ANY(%(pilots)s)
    RETURNING l
)
SELECT back.* FROM (SELECT array_agg(l) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: client_left
-- As when its deadline passes: the job goes to another host, and a late answer is still one.
WITH gone AS (
    DELETE FROM lease WHERE client = %(client)s RETURNING lease
)
SELECT back.* FROM (SELECT array_agg(lease) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: returned
-- As when the client left, but these replicas alone.
WITH gone AS (
    DELETE FROM lease USING unnest(%(bots)s::bigint[], %(seqs)s::bigint[], %(replicas)s::bigint[])
           AS item (bot, seq, replica)
     WHERE (lease.bot, lease.seq, lease.replica) = (item.bot, item.seq, item.replica)
       AND client = %(client)s
    RETURNING lease
)
SELECT back.* FROM (SELECT array_agg(lease) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: host_banned
-- As when their deadlines pass, a statement after the clients were revoked: none can come any more.
WITH gone AS (
    DELETE FROM lease WHERE client = ANY (ARRAY(SELECT id FROM client WHERE host = %(host)s))
    RETURNING lease
)
SELECT back.* FROM (SELECT array_agg(lease) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: host_forgotten
WITH gone AS (
    DELETE FROM lease WHERE client = ANY (ARRAY(SELECT id FROM client WHERE host = %(host)s))
    RETURNING lease
)
SELECT back.* FROM (SELECT array_agg(lease) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: client_revoked
WITH gone AS (
    DELETE FROM lease WHERE client = ANY (ARRAY(SELECT id FROM client WHERE joined_with = %(token)s))
    RETURNING lease
)
SELECT back.* FROM (SELECT array_agg(lease) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: job_has_outcome
WITH gone AS (
    DELETE FROM lease l USING json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
     WHERE (l.bot, l.seq) = (x.bot, x.seq) RETURNING l
)
SELECT back.* FROM (SELECT array_agg(l) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: gathering_ended
-- Members of gangs that gathered for too long.
WITH gone AS (
    DELETE FROM lease l
     USING json_to_recordset(%(gangs)s) AS x (bot bigint, number bigint)
      JOIN gang g ON (g.bot, g.number) = (x.bot, x.number)
     WHERE l.bot = g.bot AND l.seq >= g.number * g.size AND l.seq < (g.number + 1) * g.size
    RETURNING l
), woken AS (
    INSERT INTO pending SELECT (l).bot, (l).seq FROM gone
)
SELECT back.* FROM (SELECT array_agg(l) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: gang_broken
WITH gone AS (
    DELETE FROM lease l USING json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
     WHERE (l.bot, l.seq) = (x.bot, x.seq) RETURNING l
)
SELECT back.* FROM (SELECT array_agg(l) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: manifest_replaced
-- Replicas of an earlier version of their BOT's manifest, which must not go on.
WITH gone AS (
    DELETE FROM lease l USING json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int)
     WHERE (l.bot, l.seq, l.replica) = (x.bot, x.seq, x.replica) RETURNING l
), woken AS (
    INSERT INTO pending SELECT (l).bot, (l).seq FROM gone
)
SELECT back.* FROM (SELECT array_agg(l) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: retire_ended
-- Answers of an earlier version that nobody has judged, and late ones that would still be taken.
-- How many of them were answers, by grid.
WITH retired AS (
    UPDATE ended SET how = %(how)s, reason = %(reason)s
     WHERE bot = %(bot)s AND seq = ANY(%(jobs)s) AND how = ANY(%(before)s)
       AND (how = 'expired' OR valid IS NULL)
    RETURNING client, digest
)
SELECT coalesce(c.grid, '') AS grid, count(*) AS replicas
  FROM retired r LEFT JOIN client c ON c.id = r.client
 WHERE r.digest IS NOT NULL GROUP BY 1

-- name: drop_copies_of_jobs
DELETE FROM requeue q USING json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
 WHERE (q.bot, q.seq) = (x.bot, x.seq) RETURNING q.bot

-- name: bot_cancelled
-- Replicas of cancelled BOTs: their clients are told to stop when they ask next.
WITH gone AS (
    DELETE FROM lease WHERE ctid = ANY (ARRAY(
        SELECT l.ctid FROM bot b JOIN lease l ON l.bot = b.id
         WHERE b.state = 'cancelled' LIMIT %(limit)s FOR UPDATE OF l SKIP LOCKED))
    RETURNING lease
)
SELECT back.* FROM (SELECT array_agg(lease) AS leases FROM gone) AS x
 CROSS JOIN leave_unanswered(x.leases, %(how)s, %(reason)s) AS back

-- name: sweep_copies
DELETE FROM requeue WHERE ctid = ANY (ARRAY(
    SELECT q.ctid FROM bot b JOIN requeue q ON q.bot = b.id
     WHERE b.state = 'cancelled' LIMIT %(limit)s FOR UPDATE OF q SKIP LOCKED))
RETURNING bot

-- name: copy_answers
-- As of a replica that nobody ran: it took no time, and earns nothing.
INSERT INTO ended (bot, seq, replica, round, why, how, client, host, owner, sent_at, exit_code, digest,
                   valid)
SELECT r.bot, r.seq, 1, 0, 'first', 'success', 0, 0, %(owner)s, now(), e.exit_code, e.digest, true
  FROM reused r
  JOIN outcome o ON (o.bot, o.seq) = (r.from_bot, r.from_seq)
  JOIN ended e ON (e.bot, e.seq, e.replica) = (o.bot, o.seq, o.canonical)
 WHERE r.bot = %(bot)s AND r.seq >= %(first)s AND r.seq < %(end)s
RETURNING seq

-- name: remove_ended
-- Of jobs from the first to below the size: without that bound, it would look at all that is dead
-- already, ever more.
-- Replicas first: whoever adds an output to one holds its row, or that of the BOT.
WITH gone AS (
    DELETE FROM ended WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(size)s
    RETURNING seq, host, valid
), earned AS MATERIALIZED (
    SELECT gone.host, sum(outcome.credit) AS credit
      FROM gone JOIN outcome ON outcome.bot = %(bot)s AND outcome.seq = gone.seq
     WHERE gone.valid GROUP BY gone.host
), locked AS MATERIALIZED (
    SELECT earned.* FROM earned JOIN host_credit USING (host)
     ORDER BY host FOR NO KEY UPDATE OF host_credit
)
UPDATE host_credit SET of_deleted = of_deleted + locked.credit
  FROM locked WHERE host_credit.host = locked.host
