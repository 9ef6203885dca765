-- name: demand
-- What unfinished BOTs could use: replicas to be sent, and those that run on pilots by grid.
SELECT b.id, b.name, o.name AS owner_name, b.owner, o.operator, o.share, b.policy, b.manifest,
       b.signature IS NOT NULL AS signed, b.owner_signature IS NOT NULL AS owner_signed,
       b.policy_version, b.size, b.done, b.failed, b.tail,
       extract(epoch FROM b.created_at)::float8 AS created_at,
       b.turnaround_sum / nullif(b.turnaround_n, 0) AS mean_turnaround,
       known_run(b.turnaround_n, b.cut_off, b.usual_seconds) AS usual_seconds,
       CASE WHEN b.cut_off > 1 THEN b.cut_off_seconds::float8 END AS cut_off_seconds,
       greatest(0, b.size - count.first + count.queued) AS unsent,
       greatest(0, count.sent - count.back) AS running,
       (SELECT count(*) FROM requeue q WHERE q.bot = b.id AND q.pool = 'dedicated') AS dedicated,
       (SELECT coalesce(json_object_agg(x.grid, x.n), '{}')
          FROM (SELECT c.grid, count(*) AS n FROM lease l JOIN client c ON c.id = l.client
                 WHERE l.bot = b.id AND c.grid IS NOT NULL GROUP BY c.grid) AS x) AS on_pilots
  FROM bot b JOIN owner o ON o.id = b.owner CROSS JOIN LATERAL bot_count(b.id) AS count
 WHERE b.state = 'running' AND b.suspended IS NULL AND b.held IS NULL AND NOT b.waits_for_signature
 ORDER BY b.id

-- name: pilots
-- The pilots of a grid that were seen in the last `lifetime`: each once, though the reply to its
-- join may have been lost, so that it joined again.
SELECT * FROM (
    SELECT DISTINCT ON (c.pilot)
           c.pilot, c.id AS client, c.host, h.ad->>'Name' AS host_name, c.jobs, c.failures,
           c.core_seconds, c.failure AS error, extract(epoch FROM now() - c.seen_at)::float8 AS seen_seconds_ago,
           (SELECT count(*) FROM lease WHERE lease.client = c.id) AS running, h.ad
      FROM client c JOIN host h ON h.id = c.host
     WHERE c.grid = %(grid)s AND c.expires_at > now() - %(lifetime)s::interval
       AND c.seen_at > now() - %(lifetime)s::interval
     ORDER BY c.pilot, c.id DESC) AS latest
 ORDER BY client DESC LIMIT %(limit)s

-- name: owner_ids
SELECT name, id FROM owner WHERE name = ANY(%(names)s)

-- name: add_token
INSERT INTO token (hash, owner, scope, grid, serves, tag, pilots, artefact, label, expires_at)
VALUES (%(hash)s, %(owner)s, 'pilot', %(grid)s, %(serves)s, %(tag)s, %(count)s, %(artefact)s,
        'pilots ' || %(tag)s, now() + %(lifetime)s)
RETURNING id

-- name: good_keys
-- Which of these submissions have a key that is neither revoked nor expired.
SELECT tag, max(id) FROM token
 WHERE scope = 'pilot' AND tag = ANY(%(tags)s) AND revoked_at IS NULL
   AND (expires_at IS NULL OR expires_at > now())
 GROUP BY tag


-- name: note_refusals
INSERT INTO refusals (constructor, bots) VALUES (%(constructor)s, %(bots)s)
ON CONFLICT (constructor) DO UPDATE SET bots = excluded.bots, said_at = now()

-- name: drop_refusals
-- Of constructors that are gone: each repeats what it says while it runs.
DELETE FROM refusals WHERE said_at < now() - interval '1 day'


-- name: demand_version
-- Another text whenever a BOT begins, grows, is held, gets another policy or ends.
SELECT md5(coalesce(string_agg(id || ' ' || size || ' ' || policy_version, ',' ORDER BY id), ''))
  FROM bot
 WHERE state = 'running' AND suspended IS NULL AND held IS NULL AND NOT waits_for_signature


-- name: keep_logs
INSERT INTO pilot_log (pilot, grid, native_id, node, how, exit_code, words)
SELECT x.pilot, %(grid)s, x.native_id, x.node, x.how, x.exit_code, x.words
  FROM json_to_recordset(%(logs)s)
       AS x (pilot text, native_id text, node text, how text, exit_code int, words text)
ON CONFLICT (pilot) DO UPDATE
   SET native_id = excluded.native_id, node = excluded.node, how = excluded.how,
       exit_code = excluded.exit_code, words = excluded.words, told_at = now()
 WHERE pilot_log.grid = excluded.grid

-- name: drop_logs
-- Old ones, and the oldest beyond the most that are kept.
DELETE FROM pilot_log
 WHERE told_at < now() - %(lifetime)s::interval
    OR told_at <= (SELECT told_at FROM pilot_log ORDER BY told_at DESC OFFSET %(most)s LIMIT 1)

-- name: logs
SELECT pilot, grid, native_id, node, how, exit_code,
       extract(epoch FROM now() - told_at)::float8 AS told_seconds_ago
  FROM pilot_log WHERE %(grid)s IN ('', grid) ORDER BY told_at DESC, pilot LIMIT %(limit)s

-- name: log
SELECT pilot, grid, native_id, node, how, exit_code, words,
       extract(epoch FROM now() - told_at)::float8 AS told_seconds_ago
  FROM pilot_log WHERE pilot = %(pilot)s
