-- name: of_bots
SELECT id AS bot, trace, traced_jobs AS jobs FROM bot WHERE id = ANY(%(bots)s)

-- name: sent
-- A first copy waited since its BOT was submitted, a further one since its job ended a replica, or
-- has had one.
SELECT l.bot, l.seq, l.replica, l.why, coalesce(c.grid, '') AS grid,
       extract(epoch FROM CASE WHEN l.why = 'first' THEN b.created_at
            ELSE coalesce((SELECT max(e.ended_at) FROM ended e WHERE (e.bot, e.seq) = (l.bot, l.seq)),
                          (SELECT min(o.sent_at) FROM lease o WHERE (o.bot, o.seq) = (l.bot, l.seq)))
            END)::float8 AS queued_at,
       extract(epoch FROM l.sent_at)::float8 AS sent_at
  FROM json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int)
  JOIN lease l ON (l.bot, l.seq, l.replica) = (x.bot, x.seq, x.replica)
  JOIN bot b ON b.id = l.bot JOIN client c ON c.id = l.client

-- name: ended
SELECT e.bot, e.seq, e.replica, e.how, e.reason, coalesce(e.valid, false) AS valid,
       coalesce(c.grid, '') AS grid,
       extract(epoch FROM e.sent_at)::float8 AS sent_at,
       extract(epoch FROM e.ended_at)::float8 AS ended_at,
       extract(epoch FROM now())::float8 AS now
  FROM json_to_recordset(%(replicas)s) AS x (bot bigint, seq bigint, replica int)
  JOIN ended e ON (e.bot, e.seq, e.replica) = (x.bot, x.seq, x.replica)
  LEFT JOIN client c ON c.id = e.client
