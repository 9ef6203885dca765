-- name: tell
-- Nothing, if the group has gone meanwhile; no other statement takes it away from here on.
INSERT INTO workflow (bot_group, kind, name, state, seconds, eta_seconds, waiting, running, done,
                      failed, futile, graph)
SELECT id, %(kind)s, %(name)s, %(state)s, %(seconds)s, %(eta_seconds)s, %(waiting)s, %(running)s,
       %(done)s, %(failed)s, %(futile)s, %(graph)s
  FROM bot_group WHERE id = %(group)s FOR KEY SHARE
ON CONFLICT (bot_group) DO UPDATE
   SET kind = excluded.kind, name = excluded.name, state = excluded.state, seconds = excluded.seconds,
       eta_seconds = excluded.eta_seconds, waiting = excluded.waiting, running = excluded.running,
       done = excluded.done, failed = excluded.failed, futile = excluded.futile,
       graph = excluded.graph, told_at = now()

-- name: list
-- Those that go on first, then the latest; `mine` is null for an operator, who sees everybody's.
-- Of a run that was killed nobody hears again: after a day without a word it is one of the others.
SELECT w.bot_group AS id, g.name AS "group", owner.name AS owner, w.kind, w.name, w.state, w.seconds,
       w.eta_seconds, w.waiting, w.running, w.done, w.failed, w.futile, w.told_at,
       extract(epoch FROM now() - w.told_at)::float8 AS silent_seconds
  FROM workflow w JOIN bot_group g ON g.id = w.bot_group JOIN owner ON owner.id = g.owner
 WHERE (%(mine)s::int IS NULL OR g.owner = %(mine)s)
   AND (%(workflow)s::bigint IS NULL OR w.bot_group = %(workflow)s)
 ORDER BY w.state <> 'running' OR w.told_at < now() - interval '1 day', w.bot_group DESC LIMIT %(limit)s

-- name: graph
SELECT graph FROM workflow WHERE bot_group = %(workflow)s
