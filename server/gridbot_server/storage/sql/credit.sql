-- name: appraisals
-- Read under the lock of the BOTs' rows.  The manifest is looked into only once per BOT.
SELECT b.id AS bot, coalesce(a.cpus, (b.manifest::json #>> '{resources,cpus}')::int, 1) AS cpus,
       coalesce(a.limit_seconds, (b.manifest::json #>> '{resources,seconds}')::float8, 86400)
       AS limit_seconds, a.seconds, coalesce(a.votes, 0) AS votes
  FROM bot b LEFT JOIN appraisal a ON a.bot = b.id
 WHERE b.id = ANY(%(bots)s)

-- name: paces
SELECT host, pace FROM host_credit WHERE host = ANY(%(hosts)s)

-- name: appraise
INSERT INTO appraisal (bot, cpus, limit_seconds, seconds, votes)
SELECT bot, cpus, limit_seconds, seconds, votes
  FROM json_to_recordset(%(bots)s) AS x (
       bot bigint, cpus int, limit_seconds float8, seconds float8, votes bigint)
ON CONFLICT (bot) DO UPDATE SET seconds = EXCLUDED.seconds, votes = EXCLUDED.votes

-- name: grant
-- Rows in one order for all writers.  The pace of a new host was the typical one, 1; it is multiplied,
-- so that of two who learn at once none forgets what the other learnt.
WITH of_hosts AS (
    INSERT INTO host_credit AS h (host, pace, total, average)
    SELECT host, pace, credit, average_credit(0, now(), credit)
      FROM json_to_recordset(%(hosts)s) AS x (host bigint, pace float8, credit float8)
     ORDER BY host
    ON CONFLICT (host) DO UPDATE
       SET pace = h.pace * EXCLUDED.pace, total = h.total + EXCLUDED.total,
           average = average_credit(h.average, h.averaged_at, EXCLUDED.total), averaged_at = now()
)
INSERT INTO volunteer AS v (owner, total, average)
SELECT owner, credit, average_credit(0, now(), credit)
  FROM json_to_recordset(%(owners)s) AS x (owner int, credit float8) ORDER BY owner
ON CONFLICT (owner) DO UPDATE
   SET total = v.total + EXCLUDED.total,
       average = average_credit(v.average, v.averaged_at, EXCLUDED.total), averaged_at = now()
RETURNING owner, team

-- name: grant_teams
WITH locked AS MATERIALIZED (
    SELECT x.* FROM json_to_recordset(%(teams)s) AS x (id bigint, credit float8)
      JOIN team ON team.id = x.id ORDER BY x.id FOR NO KEY UPDATE OF team
)
UPDATE team t
   SET total = t.total + locked.credit,
       average = average_credit(t.average, t.averaged_at, locked.credit), averaged_at = now()
  FROM locked WHERE t.id = locked.id

-- name: volunteer
SELECT o.name, coalesce(v.total, 0) AS credit,
       coalesce(average_credit(v.average, v.averaged_at), 0) AS recent_credit,
       t.name AS team, coalesce(v.is_public, false) AS public, o.created_at
  FROM owner o LEFT JOIN volunteer v ON v.owner = o.id LEFT JOIN team t ON t.id = v.team
 WHERE o.name = %(name)s

-- name: owner_name
SELECT name FROM owner WHERE id = %(owner)s

-- name: set_public
INSERT INTO volunteer (owner, is_public) VALUES (%(owner)s, %(public)s)
ON CONFLICT (owner) DO UPDATE SET is_public = EXCLUDED.is_public

-- name: find_team
SELECT id FROM team WHERE name = %(name)s

-- name: set_team
INSERT INTO volunteer (owner, team) VALUES (%(owner)s, %(team)s)
ON CONFLICT (owner) DO UPDATE SET team = EXCLUDED.team

-- name: add_team
INSERT INTO team (name, founder) VALUES (%(name)s, %(founder)s) ON CONFLICT DO NOTHING
RETURNING id

-- name: teams
SELECT t.name, t.total AS credit, average_credit(t.average, t.averaged_at) AS recent_credit,
       (SELECT count(*) FROM volunteer v WHERE v.team = t.id) AS members, t.created_at
  FROM team t ORDER BY t.total DESC, t.id LIMIT %(limit)s

-- name: export_secret
SELECT value FROM setting WHERE name = 'boinc_names'

-- name: export_totals
-- All who have credit, whether or not they agreed to be named.
SELECT (SELECT count(*) FROM volunteer WHERE total > 0) AS users,
       (SELECT count(*) FROM team WHERE total > 0) AS teams,
       (SELECT count(*) FROM host_credit WHERE total > 0) AS hosts,
       (SELECT coalesce(sum(total), 0) FROM volunteer) AS credit

-- name: export_users
SELECT v.owner AS id, coalesce(b.name, o.name) AS name,
       extract(epoch FROM o.created_at)::bigint AS created_at,
       v.total, v.average, extract(epoch FROM v.averaged_at)::float8 AS averaged_at, v.team
  FROM volunteer v JOIN owner o ON o.id = v.owner LEFT JOIN boinc_account b ON b.owner = v.owner
 WHERE v.is_public AND v.total > 0 ORDER BY v.owner

-- name: export_teams
SELECT t.id, t.name, CASE WHEN v.is_public THEN t.founder END AS founder,
       coalesce(b.name, o.name) AS founder_name,
       extract(epoch FROM t.created_at)::bigint AS created_at, t.total, t.average,
       extract(epoch FROM t.averaged_at)::float8 AS averaged_at
  FROM team t JOIN owner o ON o.id = t.founder
  LEFT JOIN volunteer v ON v.owner = t.founder LEFT JOIN boinc_account b ON b.owner = t.founder
 WHERE t.total > 0 ORDER BY t.id

-- name: export_hosts
SELECT h.id, CASE WHEN v.is_public THEN h.owner END AS owner, h.ad,
       extract(epoch FROM h.created_at)::bigint AS created_at,
       coalesce(extract(epoch FROM seen.seen_at), 0)::bigint AS seen_at,
       h.mean_turnaround::float8 AS turnaround_seconds,
       c.total, c.average, extract(epoch FROM c.averaged_at)::float8 AS averaged_at
  FROM host_credit c JOIN host h ON h.id = c.host
  LEFT JOIN volunteer v ON v.owner = h.owner
  LEFT JOIN (SELECT host, max(seen_at) AS seen_at FROM client GROUP BY host) AS seen
    ON seen.host = h.id
 WHERE c.total > 0 ORDER BY h.id
