-- name: whose
-- Whose history it is, also of a BOT that is deleted, and what is left of its jobs.
SELECT owner, name, created_at, CASE WHEN state IN ('done', 'cancelled') THEN ended_at END AS ended_at,
       size - done - failed AS jobs_left
  FROM bot WHERE id = %(bot)s AND deleted_at IS NULL
 UNION ALL
SELECT owner, name, created_at, ended_at, jobs_left FROM deleted_bot WHERE id = %(bot)s

-- name: bot
-- BOT 0 is all of them.  Of longer steps the sums as far as they were made, then what they are of.
SELECT extract(epoch FROM date_bin(make_interval(secs => %(step)s), h.at, 'epoch'::timestamptz))::bigint
           AS at,
       h.grid, sum(h.added)::bigint AS added, sum(h.sent)::bigint AS sent,
       sum(h.succeeded)::bigint AS succeeded, sum(h.errors)::bigint AS errors,
       sum(h.expired)::bigint AS expired, sum(h.relinquished)::bigint AS relinquished,
       sum(h.cancelled)::bigint AS cancelled, sum(h.late)::bigint AS late,
       sum(h.void)::bigint AS void, sum(h.done)::bigint AS done, sum(h.failed)::bigint AS failed,
       sum(h.retried)::bigint AS retried, sum(h.recalled)::bigint AS recalled,
       sum(h.cpu_seconds)::float8 AS cpu_seconds
  FROM json_to_recordset(%(pieces)s) AS p (step int, begin bigint, "end" bigint)
 CROSS JOIN LATERAL (  -- OFFSET: each piece by the index, however few they seem to be
       SELECT * FROM bot_history h
        WHERE h.bot = %(bot)s AND h.step = p.step
          AND h.at >= to_timestamp(p.begin) AND h.at < to_timestamp(p."end") OFFSET 0
 ) AS h
 GROUP BY 1, 2 ORDER BY 1, 2

-- name: failures
SELECT extract(epoch FROM date_bin(make_interval(secs => %(step)s), h.at, 'epoch'::timestamptz))::bigint
           AS at,
       h.grid, h.reason, sum(h.errors)::bigint AS errors
  FROM json_to_recordset(%(pieces)s) AS p (step int, begin bigint, "end" bigint)
 CROSS JOIN LATERAL (  -- OFFSET: each piece by the index, however few they seem to be
       SELECT * FROM failure_history h
        WHERE h.bot = %(bot)s AND h.step = p.step
          AND h.at >= to_timestamp(p.begin) AND h.at < to_timestamp(p."end") OFFSET 0
 ) AS h
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3

-- name: finished_since
-- How many more jobs were finished than came in.
SELECT coalesce(sum(h.done + h.failed - h.retried - h.added), 0)::bigint
  FROM json_to_recordset(%(pieces)s) AS p (step int, begin bigint, "end" bigint)
 CROSS JOIN LATERAL (  -- OFFSET: each piece by the index, however few they seem to be
       SELECT * FROM bot_history h
        WHERE h.bot = %(bot)s AND h.step = p.step
          AND h.at >= to_timestamp(p.begin) AND h.at < to_timestamp(p."end") OFFSET 0
 ) AS h

-- name: server
-- What writers count is added up; of what is looked at, the mean.
SELECT extract(epoch FROM date_bin(make_interval(secs => %(step)s), h.at, 'epoch'::timestamptz))::bigint
           AS at,
       h.name, h.label, CASE WHEN bool_and(h.is_sum) THEN sum(h.value) ELSE avg(h.value) END AS value
  FROM json_to_recordset(%(pieces)s) AS p (step int, begin bigint, "end" bigint)
 CROSS JOIN LATERAL (  -- OFFSET: each piece by the index, however few they seem to be
       SELECT * FROM server_history h
        WHERE h.step = p.step AND h.at >= to_timestamp(p.begin) AND h.at < to_timestamp(p."end") OFFSET 0
 ) AS h
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3

-- name: sums
-- Until when sums are made, by step, and the clock.
SELECT extract(epoch FROM now())::float8 AS now,
       (SELECT extract(epoch FROM until)::bigint FROM history_sum WHERE step = 3600) AS hours,
       (SELECT extract(epoch FROM until)::bigint FROM history_sum WHERE step = 86400) AS days

-- name: collect
-- Adds up what writers noted, by minute: of each BOT, and of all as BOT 0. Returns how many notes
-- there were, and for the metrics what they come to by grid.
WITH taken AS (
    DELETE FROM happening WHERE ctid = ANY (ARRAY(SELECT ctid FROM happening LIMIT %(limit)s))
    RETURNING date_trunc('minute', at) AS at, what
), x AS MATERIALIZED (
    SELECT taken.at, x.*
      FROM taken CROSS JOIN json_to_recordset(taken.what) AS x (
           bot bigint, grid text, added bigint, sent bigint, succeeded bigint, errors bigint,
           expired bigint, relinquished bigint, cancelled bigint, late bigint, void bigint,
           done bigint, failed bigint, retried bigint, recalled bigint, cpu_seconds float8,
           reason text, failed_replicas bigint, requests bigint)
), bots AS (
    INSERT INTO bot_history AS h (
           bot, step, at, grid, added, sent, succeeded, errors, expired, relinquished, cancelled,
           late, void, done, failed, retried, recalled, cpu_seconds)
    SELECT coalesce(bot, 0), 60, at, grid,
           coalesce(sum(added), 0), coalesce(sum(sent), 0), coalesce(sum(succeeded), 0),
           coalesce(sum(errors), 0), coalesce(sum(expired), 0), coalesce(sum(relinquished), 0),
           coalesce(sum(cancelled), 0), coalesce(sum(late), 0), coalesce(sum(void), 0),
           coalesce(sum(done), 0), coalesce(sum(failed), 0), coalesce(sum(retried), 0),
           coalesce(sum(recalled), 0), coalesce(sum(cpu_seconds), 0)
      FROM x WHERE bot IS NOT NULL AND reason IS NULL
     GROUP BY GROUPING SETS ((at, grid, bot), (at, grid))
     ORDER BY 1, 3, 4
    ON CONFLICT (bot, step, at, grid) DO UPDATE
       SET added = h.added + excluded.added, sent = h.sent + excluded.sent,
           succeeded = h.succeeded + excluded.succeeded, errors = h.errors + excluded.errors,
           expired = h.expired + excluded.expired,
           relinquished = h.relinquished + excluded.relinquished,
           cancelled = h.cancelled + excluded.cancelled, late = h.late + excluded.late,
           void = h.void + excluded.void, done = h.done + excluded.done,
           failed = h.failed + excluded.failed, retried = h.retried + excluded.retried,
           recalled = h.recalled + excluded.recalled,
           cpu_seconds = h.cpu_seconds + excluded.cpu_seconds
), failures AS (
    INSERT INTO failure_history AS h (bot, step, at, grid, reason, errors)
    SELECT bot, 60, at, grid, reason, sum(failed_replicas)
      FROM x WHERE reason IS NOT NULL GROUP BY at, bot, grid, reason
    ON CONFLICT (bot, step, at, grid, reason) DO UPDATE SET errors = h.errors + excluded.errors
), requests AS (
    INSERT INTO server_history AS h (step, at, name, label, is_sum, value)
    SELECT 60, at, 'requests', 'work', true, sum(requests)
      FROM x WHERE requests IS NOT NULL GROUP BY at
    ON CONFLICT (step, at, name, label) DO UPDATE SET value = h.value + excluded.value
)
SELECT (SELECT count(*) FROM taken) AS notes, coalesce(grid, '') AS grid, coalesce(reason, '') AS reason,
       coalesce(sum(sent), 0)::bigint AS sent, coalesce(sum(succeeded), 0)::bigint AS succeeded,
       coalesce(sum(failed_replicas), 0)::bigint AS failed_replicas,
       coalesce(sum(expired), 0)::bigint AS expired,
       coalesce(sum(relinquished), 0)::bigint AS relinquished,
       coalesce(sum(cancelled), 0)::bigint AS cancelled,
       coalesce(sum(done), 0)::bigint AS done, coalesce(sum(failed), 0)::bigint AS failed,
       coalesce(sum(cpu_seconds), 0)::float8 AS cpu_seconds
  FROM x GROUP BY 2, 3

-- name: due
-- The steps whose sums are due next: all that could add to them has ended, and is collected.
WITH settled AS (
    SELECT least(now() - %(settled)s, (SELECT min(at) FROM happening)) AS at
)
SELECT step, extract(epoch FROM until)::bigint AS until,
       floor(extract(epoch FROM settled.at - until) / step)::bigint AS steps
  FROM history_sum CROSS JOIN settled
 WHERE until + make_interval(secs => step) <= settled.at ORDER BY step

-- name: sum_bots
-- What was summed before is replaced, so that to repeat this changes nothing.
INSERT INTO bot_history AS s (bot, step, at, grid, added, sent, succeeded, errors, expired,
       relinquished, cancelled, late, void, done, failed, retried, recalled, cpu_seconds)
SELECT h.bot, %(step)s, date_bin(make_interval(secs => %(step)s), h.at, 'epoch'::timestamptz), h.grid,
       sum(h.added), sum(h.sent), sum(h.succeeded), sum(h.errors), sum(h.expired),
       sum(h.relinquished), sum(h.cancelled), sum(h.late), sum(h.void), sum(h.done), sum(h.failed),
       sum(h.retried), sum(h.recalled), sum(h.cpu_seconds)
  FROM bot_history h
 WHERE h.step = %(of)s AND h.at >= to_timestamp(%(begin)s) AND h.at < to_timestamp(%(end)s)
 GROUP BY 1, 3, 4
ON CONFLICT (bot, step, at, grid) DO UPDATE
   SET added = excluded.added, sent = excluded.sent, succeeded = excluded.succeeded,
       errors = excluded.errors, expired = excluded.expired, relinquished = excluded.relinquished,
       cancelled = excluded.cancelled, late = excluded.late, void = excluded.void,
       done = excluded.done, failed = excluded.failed, retried = excluded.retried,
       recalled = excluded.recalled, cpu_seconds = excluded.cpu_seconds

-- name: sum_failures
-- Beyond the 30 most frequent reasons of a BOT, which are what hosts say, all are one.
INSERT INTO failure_history AS s (bot, step, at, grid, reason, errors)
SELECT bot, %(step)s, at, grid, CASE WHEN place <= 30 THEN reason ELSE 'other' END, sum(errors)
  FROM (SELECT h.bot, h.at, h.grid, h.reason, h.errors,
               dense_rank() OVER (PARTITION BY h.bot, h.at ORDER BY h.of_reason DESC, h.reason) AS place
          FROM (SELECT bot, grid, reason, sum(errors) AS errors,
                       date_bin(make_interval(secs => %(step)s), at, 'epoch'::timestamptz) AS at,
                       sum(sum(errors)) OVER (PARTITION BY bot, reason,
                           date_bin(make_interval(secs => %(step)s), at, 'epoch'::timestamptz)) AS of_reason
                  FROM failure_history
                 WHERE step = %(of)s AND at >= to_timestamp(%(begin)s) AND at < to_timestamp(%(end)s)
                 GROUP BY 1, 2, 3, 5) AS h) AS ranked
 GROUP BY 1, 3, 4, 5
ON CONFLICT (bot, step, at, grid, reason) DO UPDATE SET errors = excluded.errors

-- name: sum_server
INSERT INTO server_history AS s (step, at, name, label, is_sum, value)
SELECT %(step)s, date_bin(make_interval(secs => %(step)s), h.at, 'epoch'::timestamptz), h.name, h.label,
       h.is_sum, CASE WHEN h.is_sum THEN sum(h.value) ELSE avg(h.value) END
  FROM server_history h
 WHERE h.step = %(of)s AND h.at >= to_timestamp(%(begin)s) AND h.at < to_timestamp(%(end)s)
 GROUP BY 2, 3, 4, 5
ON CONFLICT (step, at, name, label) DO UPDATE SET value = excluded.value

-- name: note_sums
UPDATE history_sum SET until = to_timestamp(%(end)s) WHERE step = %(step)s

-- name: purge_bots
DELETE FROM bot_history WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM bot_history WHERE step = %(step)s AND at < %(before)s
       AND at < (SELECT until FROM history_sum WHERE step = %(next)s) LIMIT %(limit)s))

-- name: purge_failures
DELETE FROM failure_history WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM failure_history WHERE step = %(step)s AND at < %(before)s
       AND at < (SELECT until FROM history_sum WHERE step = %(next)s) LIMIT %(limit)s))

-- name: purge_server
DELETE FROM server_history WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM server_history WHERE step = %(step)s AND at < %(before)s
       AND at < (SELECT until FROM history_sum WHERE step = %(next)s) LIMIT %(limit)s))

-- name: look
-- The server's figures, once a minute.
INSERT INTO server_history (step, at, name, label, is_sum, value)
SELECT 60, date_trunc('minute', now()), x.name, x.label, false, x.value
  FROM json_to_recordset(%(figures)s) AS x (name text, label text, value float8)
ON CONFLICT DO NOTHING

-- name: totals
SELECT count(*) AS bots_running,
       coalesce(sum(greatest(0, bot.size - count.first + count.queued)), 0)::bigint AS jobs_unsent,
       coalesce(sum(count.sent - count.back), 0)::bigint AS replicas_running,
       (SELECT count(*) FROM (SELECT FROM pending LIMIT 10000) AS few) AS jobs_undecided,
       (SELECT count(*) FROM dead_letter) AS jobs_set_aside
  FROM bot CROSS JOIN LATERAL bot_count(bot.id) AS count
 WHERE bot.state = 'running'

-- name: is_looked_at
SELECT true FROM server_history
 WHERE step = 60 AND at = date_trunc('minute', now()) AND name = 'jobs_unsent'

-- name: hosts
-- Clients by grid and state; those that are gone were not heard of for ten minutes.
SELECT 'hosts_' || state AS name, grid AS label, count(*)::float8 AS value
  FROM (SELECT coalesce(c.grid, '') AS grid,
               CASE WHEN c.silent_since IS NOT NULL THEN 'silent'
                    WHEN EXISTS (SELECT FROM lease l WHERE l.client = c.id) THEN 'working'
                    WHEN c.seen_at > now() - interval '10 minutes' THEN 'idle' ELSE 'gone'
               END AS state
          FROM client c
         WHERE c.revoked_at IS NULL AND c.seen_at > now() - interval '1 day') AS c
 WHERE state <> 'gone' GROUP BY 1, 2
