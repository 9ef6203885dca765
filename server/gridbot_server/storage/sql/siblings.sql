-- name: siblings
-- The other replicas of jobs that matter to a further copy: those in progress, those of silent
-- clients, successes (of a gang that begins anew none counts, not even one that comes late), and what
-- failed in the copy's round lately: whoever let it fail before may try again, lest it waits for ever.
SELECT l.bot, l.seq, l.replica,
       CASE WHEN c.silent_since IS NULL THEN 'leased' ELSE 'silent' END AS place, l.host, l.owner,
       extract(epoch FROM l.sent_at)::float8 AS sent_at,
       extract(epoch FROM c.seen_at)::float8 AS seen_at
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN lease l ON (l.bot, l.seq) = (x.bot, x.seq) JOIN client c ON c.id = l.client
 UNION ALL
SELECT e.bot, e.seq, e.replica, CASE WHEN e.how = 'success' THEN 'success' ELSE 'failed' END,
       e.host, e.owner, extract(epoch FROM e.sent_at)::float8, NULL
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN ended e ON (e.bot, e.seq) = (x.bot, x.seq)
 WHERE (e.how = 'success' AND (SELECT together FROM bot b WHERE b.id = x.bot) = 1)
    OR (e.how = ANY(%(failures)s)
        AND e.reason <> ALL(%(relinquished)s)
        AND e.ended_at > now() - interval '5 minutes'
        AND e.round = (SELECT max(q.round) FROM requeue q WHERE (q.bot, q.seq) = (x.bot, x.seq)))

-- name: hosts
SELECT h.id, h.ad->>'Name' AS name, o.name AS owner, h.error_rate, h.mean_turnaround,
       CASE WHEN h.jobs_day = now()::date THEN h.jobs_today ELSE 0 END AS jobs_today, h.grid
  FROM host h JOIN owner o ON o.id = h.owner WHERE h.id = ANY(%(hosts)s)

-- name: kinds
SELECT k.bot, k.seq, k.kind
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN job_kind k ON (k.bot, k.seq) = (x.bot, x.seq)
