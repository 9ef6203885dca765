-- name: lock_bot
SELECT state, size, round, events > 0 AS has_events, together FROM bot WHERE id = %(bot)s FOR NO KEY UPDATE

-- name: unanswered
-- Of these jobs, those that have no outcome and no answer that waits to be sure of.
SELECT seq, NOT EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq, l.replica) = (%(bot)s, x.seq, 1))
        AND NOT EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq, e.replica) = (%(bot)s, x.seq, 1))
            AS is_unsent
  FROM unnest(%(seqs)s::bigint[]) AS x (seq)
 WHERE NOT EXISTS (SELECT FROM outcome o WHERE (o.bot, o.seq) = (%(bot)s, x.seq))
   AND NOT EXISTS (SELECT FROM provisional p WHERE (p.bot, p.seq) = (%(bot)s, x.seq))
 ORDER BY seq

-- name: count_cancelled
UPDATE bot SET jobs_cancelled = jobs_cancelled + %(jobs)s WHERE id = %(bot)s

-- name: forget_unjudged
-- Nobody will judge what was answered already.
DELETE FROM unjudged WHERE bot = %(bot)s AND seq = ANY(%(seqs)s)
