-- name: take_turns
-- Only one batch at a time settles jobs of BOTs with an Assurance: what it learns of a host concerns
-- provisional outcomes of other BOTs.  With the secret of the coins.
SELECT value FROM setting, pg_advisory_xact_lock(%(lock)s) WHERE name = 'coins'

-- name: coins
SELECT value FROM setting WHERE name = 'coins'

-- name: standings
-- What those who answered BOTs have proven with their programs, and their crews.
SELECT x.bot, x.host, x.client, x.owner, h.crew, b.program,
       x.owner = b.owner OR coalesce(c.dedicated, false) AS is_vouched,
       coalesce(t.streak, 0) AS streak, coalesce(t.caught, 0) AS caught,
       coalesce(w.streak, 0) AS crew_streak, coalesce(w.caught, 0) AS crew_caught,
       h.width >= %(full)s AND coalesce(r.width >= %(full)s, false) AS is_full
  FROM json_to_recordset(%(answerers)s) AS x (bot bigint, host bigint, client bigint, owner bigint)
  JOIN bot b ON b.id = x.bot
  JOIN host h ON h.id = x.host
  LEFT JOIN client c ON c.id = x.client
  LEFT JOIN track_record t ON (t.who, t.program) = ('host ' || x.host::text, b.program)
  LEFT JOIN track_record w ON (w.who, w.program) = (h.crew, b.program)
  LEFT JOIN crew r ON r.name = h.crew

-- name: relied_on
-- The replicas that provisional outcomes of jobs rely on, and what these knew then.
SELECT p.bot, p.seq, p.replica, p.is_due, p.due_at, p.is_seasoned, p.is_canonical
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN provisional p ON (p.bot, p.seq) = (x.bot, x.seq)

-- name: keep_records
INSERT INTO track_record AS t (who, program, streak, caught, good, wrong)
SELECT who, decode(program, 'hex'), streak, caught, good, wrong
  FROM json_to_recordset(%(records)s) AS x (
       who text, program text, streak int, caught int, good int, wrong int)
 ORDER BY 1, 2
ON CONFLICT (who, program) DO UPDATE
   SET streak = excluded.streak, caught = excluded.caught,
       good = t.good + excluded.good, wrong = t.wrong + excluded.wrong

-- name: wake_relying
-- Outcomes that rely on these hosts, or on these crews and wait for a trusted one, are looked at again.
WITH x AS MATERIALIZED (
    SELECT host, crew, decode(program, 'hex') AS program
      FROM json_to_recordset(%(who)s) AS x (host bigint, crew text, program text)
), relying AS (
    SELECT p.bot, p.seq, x.program FROM x JOIN provisional p ON p.host = x.host
     UNION
    SELECT p.bot, p.seq, x.program
      FROM x JOIN unjudged u ON u.crew = x.crew
      JOIN provisional p ON (p.bot, p.seq, p.replica) = (u.bot, u.seq, u.replica)
)
INSERT INTO pending (bot, seq)
SELECT r.bot, r.seq FROM relying r JOIN bot b ON b.id = r.bot AND b.program = r.program

-- name: pass_checks
-- First answers of hosts that proved right season what these said before, alone or agreeing with
-- others.  One that was chosen among all that its host had open then stands for these: it counts as
-- if given at that time.  Times are sorted, and counted by bisection: pairs would be very many.
-- What passed enough checks is sure if no check of what its host answered before those is still
-- awaited.  Each row is changed once, and found by its host: to join what was found before would be
-- pairs again.
WITH x AS MATERIALIZED (
    SELECT host, decode(program, 'hex') AS program, given, due, (
           SELECT coalesce(min(e.ended_at), 'infinity')
             FROM (SELECT u.bot, u.seq, u.replica
                     FROM unjudged u LEFT JOIN provisional p
                       ON (p.bot, p.seq, p.replica) = (u.bot, u.seq, u.replica)
                    WHERE u.host = x.host AND u.replica = 1 AND coalesce(p.is_due, true)
                   OFFSET 0) AS awaited  -- few: most first answers are not
             JOIN bot b ON b.id = awaited.bot AND b.program = decode(x.program, 'hex')
             JOIN ended e ON (e.bot, e.seq, e.replica)
                           = (awaited.bot, awaited.seq, awaited.replica)
            WHERE e.how = 'success') AS until
      FROM json_to_recordset(%(checks)s) AS x (
           host bigint, program text, given timestamptz[], due timestamptz[])
), counted AS (
    UPDATE provisional p
       SET (passed, passed_by, is_seasoned) = (
           SELECT n.passed, n.passed_by, n.passed >= %(season)s AND n.passed_by < x.until
             FROM (SELECT p.passed, p.passed_by WHERE p.passed >= %(season)s
                    UNION ALL
                   SELECT p.passed + cardinality(x.given) - width_bucket(
                              p.ended_at, CASE WHEN p.is_lone THEN x.due ELSE x.given END),
                          greatest(p.passed_by, x.given[cardinality(x.given)])
                    WHERE p.passed < %(season)s) AS n (passed, passed_by))
      FROM x, bot b
     WHERE p.host = x.host AND b.id = p.bot AND b.program = x.program AND NOT p.is_seasoned
       AND CASE WHEN p.passed >= %(season)s THEN p.passed_by < x.until
           ELSE p.ended_at < (CASE WHEN p.is_lone THEN x.due ELSE x.given END)[cardinality(x.given)]
           END
    RETURNING p.bot, p.seq, p.is_seasoned
)
INSERT INTO pending (bot, seq) SELECT DISTINCT bot, seq FROM counted WHERE is_seasoned

-- name: forget_provisional
DELETE FROM provisional p USING json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
 WHERE (p.bot, p.seq) = (x.bot, x.seq)

-- name: add_provisional
INSERT INTO provisional (bot, seq, replica, host, ended_at, is_lone, is_canonical)
SELECT bot, seq, replica, host, ended_at, is_lone, is_canonical
  FROM json_to_recordset(%(replicas)s) AS x (
       bot bigint, seq bigint, replica int, host bigint, ended_at timestamptz, is_lone boolean,
       is_canonical boolean)

-- name: number_events
UPDATE bot b SET events = b.events + x.events, provisional = b.provisional + x.provisional,
       doubt = b.doubt + x.doubt
  FROM json_to_recordset(%(bots)s) AS x (
       bot bigint, events bigint, provisional bigint, doubt float8)
 WHERE b.id = x.bot
RETURNING b.id AS bot, b.events - x.events AS last

-- name: add_events
INSERT INTO result_event (bot, n, seq, kind, replica)
SELECT bot, n, seq, kind, replica
  FROM json_to_recordset(%(events)s) AS x (
       bot bigint, n bigint, seq bigint, kind text, replica int)

-- name: closing
-- BOTs with nothing left but provisional outcomes: their hosts' open answers.
SELECT p.bot, p.seq, p.replica, p.host, p.is_lone, p.is_due,
       b.provisional::float8 / b.size AS open_part
  FROM bot b JOIN provisional p ON p.bot = b.id
 WHERE b.id = ANY(%(bots)s) AND b.state = 'running' AND b.provisional > 0
   AND b.done + b.failed + b.provisional >= b.size

-- name: crowded
-- Open answers of those of these hosts whose own width, or whose crew's, they have nearly filled.
-- A full width bounds nothing.  BOTs that end are looked at anyway.
WITH x AS MATERIALIZED (
    SELECT id, crew, width FROM host WHERE id = ANY(%(hosts)s)
), crews AS MATERIALIZED (
    SELECT c.crew FROM (SELECT DISTINCT crew FROM x) AS c LEFT JOIN crew w ON w.name = c.crew
     WHERE coalesce(w.width, 8) < %(full)s
       AND (SELECT count(*) FROM unjudged u
              JOIN provisional p ON (p.bot, p.seq, p.replica) = (u.bot, u.seq, u.replica)
             WHERE u.crew = c.crew AND p.is_lone) >= %(part)s * coalesce(w.width, 8)
), crowded AS MATERIALIZED (
    SELECT id FROM x
     WHERE crew IN (SELECT crew FROM crews)
        OR width < %(full)s AND (SELECT count(*) FROM provisional p
                                  WHERE p.host = x.id AND p.is_lone) >= %(part)s * width
)
SELECT p.bot, p.seq, p.replica, p.host, p.is_lone, p.is_due, 0::float8 AS open_part
  FROM crowded c JOIN provisional p ON p.host = c.id AND p.is_lone
 WHERE p.bot <> ALL(%(bots)s)

-- name: make_due
WITH due AS (
    UPDATE provisional p SET is_due = true, due_at = now()
      FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
     WHERE (p.bot, p.seq) = (x.bot, x.seq)
    RETURNING p.bot, p.seq
)
INSERT INTO pending (bot, seq) SELECT DISTINCT bot, seq FROM due

-- name: workers_of_an_older_bot
-- Crews that got some of a BOT's work, as they were counted last; null if that counts no more, and no
-- row while the BOT is young.
SELECT CASE WHEN crews_counted_at BETWEEN now() - make_interval(secs => crews_seconds * %(rest)s)
                                      AND now() THEN crews END AS crews
  FROM bot WHERE id = %(bot)s AND created_at <= now() - interval '10 minutes'

-- name: count_workers
UPDATE bot b
   SET crews = f.crews, crews_counted_at = now(),
       crews_seconds = extract(epoch FROM clock_timestamp() - statement_timestamp())
  FROM (SELECT count(*) AS crews
          FROM (SELECT DISTINCT crew FROM unjudged WHERE bot = %(bot)s) AS crew) AS f
 WHERE b.id = %(bot)s
RETURNING b.crews

-- name: asking_crews
-- Crews that ask for work, as they were counted last, if that may count on.
SELECT crews, new FROM asking_crews
 WHERE counted_at BETWEEN now() - make_interval(secs => seconds * %(rest)s) AND now()

-- name: count_asking_crews
UPDATE asking_crews a
   SET crews = f.crews, new = f.new, counted_at = now(),
       seconds = extract(epoch FROM clock_timestamp() - statement_timestamp())
  FROM (SELECT count(*) AS crews, count(*) FILTER (WHERE is_new) AS new
          FROM (SELECT h.crew,
                       bool_and(c.created_at > now() - make_interval(secs => %(new_seconds)s))
                           AS is_new
                  FROM client c JOIN host h ON h.id = c.host
                 WHERE c.seen_at > now() - interval '10 minutes'
                 GROUP BY h.crew) AS crew) AS f
RETURNING a.crews, a.new

-- name: agreements
SELECT a.program, a.one, a.other, a.times
  FROM json_to_recordset(%(pairs)s) AS x (program text, one text, other text)
  JOIN mutual_agreement a
    ON (a.program, a.one, a.other) = (decode(x.program, 'hex'), x.one, x.other)

-- name: add_agreements
INSERT INTO mutual_agreement AS a (program, one, other, times)
SELECT decode(program, 'hex'), one, other, times
  FROM json_to_recordset(%(pairs)s) AS x (program text, one text, other text, times int)
 ORDER BY 1, 2, 3
ON CONFLICT (program, one, other) DO UPDATE SET times = a.times + excluded.times
