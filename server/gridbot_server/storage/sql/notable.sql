-- name: add_examples
-- A few of each BOT: a host's own words must not fill the disk.
INSERT INTO failure_example (bot, reason, at, seq, replica, host, grid, exit_code, stderr)
SELECT e.bot, e.reason, e.ended_at, e.seq, e.replica, e.host, coalesce(c.grid, ''), e.exit_code,
       right(coalesce(e.stderr, ''), 2000)
  FROM json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int)
  JOIN ended e ON (e.bot, e.seq, e.replica) = (x.bot, x.seq, x.replica)
  LEFT JOIN client c ON c.id = e.client
 WHERE (SELECT count(*) FROM failure_example f WHERE f.bot = e.bot) < %(most)s
ON CONFLICT DO NOTHING

-- name: add_slowest
-- Those that are among the slowest now, and out with those that are not any more.
WITH x AS MATERIALIZED (
    SELECT x.* FROM json_to_recordset(%(jobs)s) AS x (
           bot bigint, seq bigint, replica int, host bigint, client bigint,
           wall_seconds float8, cpu_seconds float8)
     WHERE x.wall_seconds > coalesce((SELECT min(s.wall_seconds) FROM slowest_job s WHERE s.bot = x.bot
                                      HAVING count(*) >= %(most)s), 0)
), ranked AS (
    SELECT a.*, row_number() OVER (PARTITION BY bot ORDER BY wall_seconds DESC, seq) AS place
      FROM (SELECT bot, seq, wall_seconds FROM slowest_job
             WHERE bot IN (SELECT bot FROM x) AND (bot, seq) NOT IN (SELECT bot, seq FROM x)
             UNION ALL
            SELECT bot, seq, wall_seconds FROM x) AS a
), fallen AS (
    DELETE FROM slowest_job s USING ranked r
     WHERE (s.bot, s.seq) = (r.bot, r.seq) AND r.place > %(most)s
)
INSERT INTO slowest_job AS s (bot, seq, replica, host, grid, wall_seconds, cpu_seconds)
SELECT x.bot, x.seq, x.replica, x.host, coalesce(c.grid, ''), x.wall_seconds, x.cpu_seconds
  FROM x JOIN ranked r ON (r.bot, r.seq) = (x.bot, x.seq) AND r.place <= %(most)s
  LEFT JOIN client c ON c.id = x.client
ON CONFLICT (bot, seq) DO UPDATE
   SET replica = excluded.replica, host = excluded.host, grid = excluded.grid,
       wall_seconds = excluded.wall_seconds, cpu_seconds = excluded.cpu_seconds

-- name: examples
SELECT reason, at, seq, replica, host, nullif(grid, '') AS grid, exit_code, stderr
  FROM failure_example WHERE bot = %(bot)s ORDER BY reason

-- name: slowest
SELECT seq, replica, host, nullif(grid, '') AS grid, wall_seconds, cpu_seconds
  FROM slowest_job WHERE bot = %(bot)s ORDER BY wall_seconds DESC, seq

-- name: end_sessions
-- Clients that are not heard of any more.  Stock clients ask seldom when they have nothing to do.
WITH over AS MATERIALIZED (
    SELECT c.id, c.host, coalesce(c.grid, '') AS grid, c.session_at,
           CASE WHEN h.banned_at = c.revoked_at THEN 'banned'
                WHEN c.left_at >= c.seen_at THEN 'left'
                WHEN c.revoked_at IS NOT NULL THEN 'revoked'
                WHEN c.expires_at < now() THEN 'expired'
                WHEN c.silent_since IS NOT NULL THEN 'silent'
                ELSE 'gone' END AS why,
           greatest(c.session_at, CASE WHEN c.left_at >= c.seen_at THEN c.left_at
                                       ELSE c.seen_at END) AS ended_at
      FROM client c JOIN host h ON h.id = c.host
     WHERE c.session_at IS NOT NULL
       AND (c.revoked_at IS NOT NULL OR c.left_at >= c.seen_at OR c.expires_at < now()
            OR c.silent_since IS NOT NULL
            OR c.seen_at < now() - greatest(interval '10 minutes',
                                            make_interval(secs => 3 * coalesce(c.contact_seconds, 0)))
               AND NOT EXISTS (SELECT FROM boinc_client k
                                WHERE k.client = c.id AND c.seen_at > now() - interval '1 day'))
     ORDER BY c.id LIMIT %(limit)s FOR NO KEY UPDATE OF c SKIP LOCKED
), ended AS (
    UPDATE client SET session_at = NULL FROM over WHERE client.id = over.id
)
INSERT INTO host_session (host, client, grid, began_at, ended_at, why)
SELECT host, id, grid, session_at, ended_at, why FROM over

-- name: purge_sessions
DELETE FROM host_session WHERE id = ANY (ARRAY(
    SELECT id FROM host_session WHERE ended_at < now() - %(age)s LIMIT %(limit)s))

-- name: purge_examples
-- What is kept of the logs of BOTs that are deleted, a year after their end.
DELETE FROM failure_example WHERE bot IN (
    SELECT DISTINCT f.bot FROM failure_example f JOIN deleted_bot d ON d.id = f.bot
     WHERE d.ended_at < now() - %(age)s LIMIT %(limit)s)

-- name: purge_slowest
DELETE FROM slowest_job WHERE bot IN (
    SELECT DISTINCT s.bot FROM slowest_job s JOIN deleted_bot d ON d.id = s.bot
     WHERE d.ended_at < now() - %(age)s LIMIT %(limit)s)

-- name: note_leave
UPDATE client SET left_at = now() WHERE id = %(client)s

-- name: note_ended_pilots
UPDATE client SET left_at = now() WHERE grid = %(grid)s AND pilot = ANY(%(pilots)s)

-- name: sessions
-- Of a host, the latest first: those that go on, and those that are over.
SELECT client, nullif(grid, '') AS grid, began_at, ended_at, why
  FROM (SELECT id AS client, coalesce(grid, '') AS grid, session_at AS began_at,
               NULL::timestamptz AS ended_at, NULL AS why
          FROM client WHERE host = %(host)s AND session_at IS NOT NULL
         UNION ALL
        SELECT client, grid, began_at, ended_at, why FROM host_session WHERE host = %(host)s) AS s
 ORDER BY began_at DESC LIMIT %(limit)s
