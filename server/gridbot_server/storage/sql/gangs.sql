-- name: together
SELECT together FROM bot WHERE id = %(bot)s

-- name: gathering
-- Of these BOTs, the gangs that wait for further members, as long as work of the BOT may be sent: since
-- when, and which jobs they lack.  The first that began comes last.
SELECT g.bot, g.number, extract(epoch FROM g.since)::float8 AS since,
       ARRAY(SELECT job.seq
               FROM generate_series(g.number * g.size, (g.number + 1) * g.size - 1) AS job (seq)
              WHERE NOT EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq) = (g.bot, job.seq))) AS lacks
  FROM gang g JOIN bot b ON b.id = g.bot
 WHERE g.bot = ANY(%(bots)s) AND g.gather_until IS NOT NULL AND NOT g.is_whole
   AND b.state = 'running' AND b.held IS NULL AND b.suspended IS NULL AND NOT b.waits_for_signature
   AND NOT EXISTS (SELECT FROM gang_rest r WHERE r.bot = b.id AND r.rests_until > now())
 ORDER BY g.since DESC, g.bot DESC, g.number DESC

-- name: all_gathering
-- The same of all BOTs, without what it takes to look for.
SELECT g.bot, g.number
  FROM gang g JOIN bot b ON b.id = g.bot
 WHERE g.gather_until IS NOT NULL AND NOT g.is_whole
   AND b.state = 'running' AND b.held IS NULL AND b.suspended IS NULL AND NOT b.waits_for_signature
   AND NOT EXISTS (SELECT FROM gang_rest r WHERE r.bot = b.id AND r.rests_until > now())

-- name: claim_gathering
-- What gangs that gather may lack is claimed before other machines have it, too, and stays claimed.
WITH wanted AS (
    SELECT g.bot, max((g.number + 1) * g.size) AS upto
      FROM gang g
     WHERE g.bot = ANY(%(bots)s) AND g.gather_until IS NOT NULL AND NOT g.is_whole
     GROUP BY g.bot
), old AS (
    SELECT b.id, b.fed, w.upto
      FROM bot b JOIN wanted w ON w.bot = b.id
     WHERE b.state = 'running' AND (b.fed < w.upto OR b.gathered < w.upto)
     ORDER BY b.id FOR NO KEY UPDATE OF b
), moved AS (
    UPDATE bot b SET fed = greatest(b.fed, old.upto), gathered = greatest(b.gathered, old.upto)
      FROM old WHERE b.id = old.id
)
INSERT INTO feed_range (bot, lo, hi, machine, expires_at)
SELECT id, fed, upto, %(machine)s, now() + %(lifetime)s FROM old WHERE fed < upto
RETURNING bot, lo, hi

-- name: first_of_gathering
-- Jobs of gangs that gather of which no copy was ever sent or queued, once they are claimed.
SELECT g.bot, job.seq
  FROM gang g JOIN bot b ON b.id = g.bot
 CROSS JOIN generate_series(g.number * g.size, (g.number + 1) * g.size - 1) AS job (seq)
 WHERE g.bot = ANY(%(bots)s) AND g.gather_until IS NOT NULL AND NOT g.is_whole
   AND job.seq < least(b.fed, b.gathered)
   AND NOT EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq) = (g.bot, job.seq))
   AND NOT EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq) = (g.bot, job.seq))
   AND NOT EXISTS (SELECT FROM requeue q WHERE (q.bot, q.seq) = (g.bot, job.seq))
   AND NOT EXISTS (SELECT FROM outcome o WHERE (o.bot, o.seq) = (g.bot, job.seq))

-- name: copies_of_gathering
SELECT q.bot, q.seq, q.replica
  FROM gang g JOIN requeue q ON q.bot = g.bot AND q.seq >= g.number * g.size
                            AND q.seq < (g.number + 1) * g.size
 WHERE g.bot = ANY(%(bots)s) AND g.gather_until IS NOT NULL AND NOT g.is_whole
   AND q.not_before <= now()

-- name: resting
SELECT bot FROM gang_rest WHERE rests_until > now()

-- name: try_to_begin
-- Until the commit no other process begins gangs.  Nobody waits for it.
SELECT pg_try_advisory_xact_lock(%(lock)s)

-- name: join
-- Those that gather and that nobody else has at this moment; whoever has one is not waited for.
SELECT g.bot, g.number
  FROM json_to_recordset(%(gangs)s) AS x (bot bigint, number bigint)
  JOIN gang g ON (g.bot, g.number) = (x.bot, x.number)
 WHERE g.gather_until IS NOT NULL AND NOT g.is_whole
 ORDER BY g.bot, g.number FOR UPDATE OF g SKIP LOCKED

-- name: begin
-- By the only process that begins gangs now (`try_to_begin`).  So it waits for nobody: one whose row
-- is about to be deleted is still seen, and is left alone.
INSERT INTO gang (bot, number, size, gather_until)
SELECT x.bot, x.number, b.together,
       now() + make_interval(secs => b.gather_seconds * power(2, least(6, coalesce(r.times, 0))))
  FROM json_to_recordset(%(gangs)s) AS x (bot bigint, number bigint)
  JOIN bot b ON b.id = x.bot
  LEFT JOIN gang_rest r ON r.bot = x.bot
 WHERE NOT EXISTS (SELECT FROM gang g WHERE (g.bot, g.number) = (x.bot, x.number))
 ORDER BY x.bot, x.number
ON CONFLICT DO NOTHING
RETURNING bot, number

-- name: make_whole
-- Those of which all jobs are leased now have time to fetch what they need, twice as long each time
-- that they gathered in vain.
UPDATE gang g
   SET is_whole = true,
       gather_until = now() + make_interval(
           secs => greatest(%(least)s, %(gatherings)s * b.gather_seconds)
                   * power(2, least(6, coalesce(r.times, 0))))
  FROM json_to_recordset(%(gangs)s) AS x (bot bigint, number bigint)
  JOIN bot b ON b.id = x.bot
  LEFT JOIN gang_rest r ON r.bot = x.bot
 WHERE (g.bot, g.number) = (x.bot, x.number) AND NOT g.is_whole
   AND g.size = (SELECT count(*) FROM lease l
                  WHERE l.bot = g.bot AND l.seq >= g.number * g.size
                    AND l.seq < (g.number + 1) * g.size)

-- name: lock_member
-- The gang of a replica that the client has.
SELECT g.number, g.gather_until IS NULL AS has_started, a.run
  FROM lease l JOIN bot b ON b.id = l.bot
  JOIN gang g ON g.bot = l.bot AND g.number = l.seq / b.together
  LEFT JOIN arrival a ON (a.bot, a.seq, a.replica) = (l.bot, l.seq, l.replica)
 WHERE (l.bot, l.seq, l.replica) = (%(bot)s, %(seq)s, %(replica)s) AND l.client = %(client)s
   FOR UPDATE OF g

-- name: state
SELECT g.gather_until IS NULL AS has_started, gang_news(g.bot, g.number) AS news,
       ARRAY(SELECT address FROM arrival a WHERE (a.bot, a.number) = (g.bot, g.number)
              ORDER BY seq) AS members
  FROM lease l JOIN bot b ON b.id = l.bot
  JOIN gang g ON g.bot = l.bot AND g.number = l.seq / b.together
 WHERE (l.bot, l.seq, l.replica) = (%(bot)s, %(seq)s, %(replica)s) AND l.client = %(client)s

-- name: arrive
INSERT INTO arrival (bot, number, seq, replica, address, run)
VALUES (%(bot)s, %(number)s, %(seq)s, %(replica)s, %(address)s, %(run)s)
ON CONFLICT (bot, seq)
DO UPDATE SET replica = excluded.replica, address = excluded.address, run = excluded.run

-- name: start
-- The last of a gang has arrived: they all start, with the whole time that each was given.
WITH started AS (
    UPDATE gang g SET gather_until = NULL
     WHERE (g.bot, g.number) = (%(bot)s, %(number)s) AND g.gather_until IS NOT NULL
       AND g.size = (SELECT count(*) FROM arrival a
                       JOIN lease l ON (l.bot, l.seq, l.replica) = (a.bot, a.seq, a.replica)
                      WHERE (a.bot, a.number) = (g.bot, g.number))
    RETURNING g.*
), rested AS (
    DELETE FROM gang_rest r USING started WHERE r.bot = started.bot
), running AS (
    UPDATE lease l SET deadline = now() + (l.deadline - l.sent_at), sent_at = now()
      FROM started s
     WHERE l.bot = s.bot AND l.seq >= s.number * s.size AND l.seq < (s.number + 1) * s.size
)
SELECT tell_gang(bot, number) FROM started

-- name: lock
-- Before their jobs are read: who leases one of them at this moment waits, or has committed.
SELECT g.bot, g.number
  FROM json_to_recordset(%(gangs)s) AS x (bot bigint, number bigint)
  JOIN gang g ON (g.bot, g.number) = (x.bot, x.number)
 ORDER BY g.bot, g.number FOR UPDATE OF g

-- name: disband
WITH gone AS (
    DELETE FROM gang g USING json_to_recordset(%(gangs)s) AS x (bot bigint, number bigint)
     WHERE (g.bot, g.number) = (x.bot, x.number) RETURNING g.*
)
SELECT tell_gang(bot, number) FROM gone

-- name: late
SELECT bot, number FROM gang WHERE gather_until < now()
 ORDER BY bot, number LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: rest
-- As long as they have gathered.
INSERT INTO gang_rest (bot, times, rests_until)
SELECT g.bot, 1, now() + max(now() - g.since)
  FROM json_to_recordset(%(gangs)s) AS x (bot bigint, number bigint)
  JOIN gang g ON (g.bot, g.number) = (x.bot, x.number)
 GROUP BY g.bot ORDER BY g.bot
ON CONFLICT (bot) DO UPDATE SET times = gang_rest.times + 1, rests_until = excluded.rests_until

-- name: forget_over
-- Of BOTs that have ended; and who waits for work is told of those that have rested.
WITH gone AS (
    DELETE FROM gang g USING bot b WHERE b.id = g.bot AND b.state <> 'running' RETURNING g.*
), rested AS (
    DELETE FROM gang_rest r USING bot b WHERE b.id = r.bot AND b.state <> 'running'
)
SELECT tell_gang(bot, number) FROM gone
