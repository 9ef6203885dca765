-- name: close
-- A BOT that is growing no more ends with its last job, which may have been long ago.
UPDATE bot SET growing = false, closed = %(why)s,
       state = CASE WHEN done + failed >= size THEN 'done' ELSE state END,
       ended_at = CASE WHEN done + failed >= size THEN now() END
 WHERE id = ANY(%(bots)s) AND growing AND state = 'running'

-- name: lock_idle
-- All their jobs are finished, the last of them long ago, and none was appended since.
SELECT id FROM bot
 WHERE state = 'running' AND growing AND done + failed >= size
   AND grown_at < now() - make_interval(days => %(days)s::int)
   AND coalesce((SELECT made_at FROM outcome o WHERE o.bot = bot.id ORDER BY n DESC LIMIT 1)
                < now() - make_interval(days => %(days)s::int), true)
 ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
