-- name: followed_clients
-- Who runs what somebody follows; nearly always nobody.  So leases are sought last: all of them would
-- be looked at otherwise.
WITH live AS MATERIALIZED (
    SELECT bot, seq, replica FROM live_output WHERE followed_until > now()
     UNION SELECT bot, seq, replica FROM shown_output WHERE shown_until > now()
)
SELECT DISTINCT lease.client FROM live
  JOIN lease ON (lease.bot, lease.seq, lease.replica) = (live.bot, live.seq, live.replica)

-- name: append
-- Only what begins where the content ends: repeated and late pieces change nothing.  Locked in the
-- order of who follows, so that these two never wait for each other.
WITH sent AS MATERIALIZED (
    SELECT live.bot, live.seq, live.replica, live.stream, x.at, x.content
      FROM json_to_recordset(%(pieces)s) AS x (
           bot bigint, seq bigint, replica int, stream text, at bigint, content text, client bigint)
      JOIN lease ON (lease.bot, lease.seq, lease.replica) = (x.bot, x.seq, x.replica)
           AND lease.client = x.client
      JOIN live_output AS live
           ON (live.bot, live.seq, live.replica, live.stream) = (x.bot, x.seq, x.replica, x.stream)
     ORDER BY live.bot, live.seq, live.replica, live.stream FOR NO KEY UPDATE OF live
)
UPDATE live_output AS live SET content = live.content || decode(sent.content, 'base64')
  FROM sent
 WHERE (live.bot, live.seq, live.replica, live.stream)
     = (sent.bot, sent.seq, sent.replica, sent.stream)
   AND sent.at = live.begins + length(live.content) AND length(live.content) < %(most)s

-- name: append_shown
-- The same for what pages show: the oldest goes, so that there is room always.
WITH sent AS MATERIALIZED (
    SELECT shown.bot, shown.seq, shown.replica, shown.stream, x.at, x.content
      FROM json_to_recordset(%(pieces)s) AS x (
           bot bigint, seq bigint, replica int, stream text, at bigint, content text, client bigint)
      JOIN lease ON (lease.bot, lease.seq, lease.replica) = (x.bot, x.seq, x.replica)
           AND lease.client = x.client
      JOIN shown_output AS shown
           ON (shown.bot, shown.seq, shown.replica, shown.stream)
            = (x.bot, x.seq, x.replica, x.stream)
     ORDER BY shown.bot, shown.seq, shown.replica, shown.stream FOR NO KEY UPDATE OF shown
)
UPDATE shown_output AS shown SET (begins, content) = (
       SELECT shown.begins + there.cut, substr(there.content, there.cut + 1)
         FROM (SELECT whole.content, greatest(0, length(whole.content) - %(shown)s) AS cut
                 FROM (SELECT shown.content || decode(sent.content, 'base64') AS content) AS whole
              ) AS there)
  FROM sent
 WHERE (shown.bot, shown.seq, shown.replica, shown.stream)
     = (sent.bot, sent.seq, sent.replica, sent.stream)
   AND sent.at = shown.begins + length(shown.content)

-- name: followed
-- From where on these clients are to send, where there is room for more; once where a page and a
-- command are at the same place.
WITH wanted AS MATERIALIZED (
    SELECT bot, seq, replica, stream, begins + length(content) AS at FROM live_output
     WHERE followed_until > now() AND length(content) < %(most)s
     UNION
    SELECT bot, seq, replica, stream, begins + length(content) FROM shown_output
     WHERE shown_until > now()
)
SELECT lease.client, wanted.bot, wanted.seq, wanted.replica, wanted.stream, wanted.at
  FROM wanted
  JOIN lease ON (lease.bot, lease.seq, lease.replica) = (wanted.bot, wanted.seq, wanted.replica)
 WHERE lease.client = ANY(%(clients)s::bigint[])
 ORDER BY wanted.bot, wanted.seq, wanted.replica, wanted.stream, wanted.at LIMIT %(limit)s

-- name: running
SELECT seq, replica FROM lease
 WHERE bot = %(bot)s AND client <> 0 AND (%(seq)s::bigint IS NULL OR seq = %(seq)s)
 ORDER BY sent_at, seq, replica LIMIT %(limit)s

-- name: follow
-- All who follow a stream share one window of it.  Who asks for a place in it reads from there on;
-- once there is much, what lies before that place goes, but for the last part, which others who ask
-- as often have not read yet.  Who asks for what lies before the window moves it back to there: the
-- client sends it again.  Who asks for what lies behind it waits, and gets no row, as long as others
-- read in it; once they are gone, it moves there.
INSERT INTO live_output AS live (bot, seq, replica, stream, begins, followed_until)
SELECT %(bot)s, x.seq, x.replica, x.stream, x.at, now() + %(patience)s
  FROM json_to_recordset(%(wanted)s) AS x (seq bigint, replica int, stream text, at bigint)
 ORDER BY x.seq, x.replica, x.stream
ON CONFLICT (bot, seq, replica, stream) DO UPDATE
   SET followed_until = EXCLUDED.followed_until,
       (begins, content) = (
       SELECT CASE WHEN NOT there.is_asked THEN EXCLUDED.begins ELSE live.begins + there.rest END,
              CASE WHEN NOT there.is_asked THEN ''
                   WHEN there.rest = 0 THEN live.content
                   ELSE substr(live.content, there.rest + 1) END
         FROM (SELECT EXCLUDED.begins BETWEEN live.begins AND live.begins + length(live.content)
                          AS is_asked,
                      greatest(0, least(EXCLUDED.begins - live.begins,
                                        length(live.content) - %(much)s))::int AS rest) AS there)
 WHERE EXCLUDED.begins <= live.begins + length(live.content) OR live.followed_until < now()
RETURNING seq, replica, stream, begins, content

-- name: watch
-- The last bytes of a job's streams, for a page that shows them anew and anew.
INSERT INTO shown_output AS shown (bot, seq, replica, stream, shown_until)
SELECT bot, seq, replica, stream, now() + %(patience)s
  FROM (SELECT bot, seq, replica FROM lease
         WHERE bot = %(bot)s AND seq = %(seq)s AND client <> 0
         ORDER BY replica LIMIT %(limit)s) AS running
 CROSS JOIN unnest(ARRAY['stdout', 'stderr']) AS stream
 ORDER BY replica, stream
ON CONFLICT (bot, seq, replica, stream) DO UPDATE SET shown_until = EXCLUDED.shown_until
RETURNING replica, stream, begins, content

-- name: forget
-- A stream that is written to right now goes next time.
DELETE FROM live_output WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM live_output WHERE followed_until < now() FOR UPDATE SKIP LOCKED))

-- name: forget_shown
-- The same of what pages showed.
DELETE FROM shown_output WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM shown_output WHERE shown_until < now() FOR UPDATE SKIP LOCKED))

-- name: is_over
-- Nothing of a job that the BOT does not have.
SELECT state NOT IN ('open', 'running') OR EXISTS (
       SELECT FROM outcome WHERE outcome.bot = bot.id AND outcome.seq = %(seq)s)
  FROM bot WHERE id = %(bot)s AND (%(seq)s::bigint IS NULL OR %(seq)s < size)
