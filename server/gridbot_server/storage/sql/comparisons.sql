-- Comparisons of answers' contents: asked for by the transitioner, made beside it.

-- name: known
-- What came of comparing answers of these jobs.
SELECT c.bot, c.seq, c.one, c.other, c.verdict, c.why
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN comparison c ON (c.bot, c.seq) = (x.bot, x.seq)
 WHERE c.verdict IS NOT NULL

-- name: ask
INSERT INTO comparison (bot, seq, one, other)
SELECT bot, seq, decode(one, 'hex'), decode(other, 'hex')
  FROM json_to_recordset(%(comparisons)s) AS x (bot bigint, seq bigint, one text, other text)
ON CONFLICT DO NOTHING

-- name: due
-- A few comparisons of each BOT that has any, without those that are being made; the BOTs are found
-- by their first entries in the index, so that the price does not depend on how many are due.
WITH RECURSIVE waiting AS (
    (SELECT bot FROM comparison WHERE verdict IS NULL ORDER BY bot LIMIT 1)
     UNION ALL
    SELECT (SELECT c.bot FROM comparison c
             WHERE c.verdict IS NULL AND c.bot > w.bot ORDER BY c.bot LIMIT 1)
      FROM waiting w WHERE w.bot IS NOT NULL
)
SELECT c.bot, c.seq, c.one, c.other, b.validator, b.owner, b.compare_with AS program
  FROM waiting w
  JOIN bot b ON b.id = w.bot AND b.state IN ('running', 'done')
 CROSS JOIN LATERAL (
       SELECT bot, seq, one, other FROM comparison
        WHERE bot = w.bot AND verdict IS NULL ORDER BY asked_at LIMIT %(most)s) AS c
 LIMIT %(limit)s

-- name: files
-- The outputs of one replica for each digest, and of known answers.
SELECT x.bot, x.seq, e.digest, o.name, o.sha256, o.size, o.content
  FROM (SELECT DISTINCT bot, seq, digest
          FROM json_to_recordset(%(comparisons)s) AS c (bot bigint, seq bigint, one text, other text)
         CROSS JOIN LATERAL (VALUES (decode(one, 'hex')), (decode(other, 'hex'))) AS d (digest)) AS x
 CROSS JOIN LATERAL (
       SELECT replica, digest FROM ended
        WHERE (ended.bot, ended.seq) = (x.bot, x.seq) AND ended.digest = x.digest
        ORDER BY replica LIMIT 1) AS e
  JOIN output o ON (o.bot, o.seq, o.replica) = (x.bot, x.seq, e.replica)
 UNION
SELECT c.bot, c.seq, k.digest, o.name, o.sha256, o.size, o.content
  FROM json_to_recordset(%(comparisons)s) AS c (bot bigint, seq bigint, one text, other text)
  JOIN known_answer k ON (k.bot, k.seq) = (c.bot, c.seq)
       AND k.digest IN (decode(c.one, 'hex'), decode(c.other, 'hex'))
  JOIN known_output o ON (o.bot, o.seq) = (k.bot, k.seq)

-- name: settle
-- A verdict is given once, and wakes the transitioner.  At the last crash that is one, too.
WITH found AS (
    SELECT * FROM json_to_recordset(%(findings)s) AS f (
        bot bigint, seq bigint, one text, other text, verdict text, place text, one_has text,
        other_has text, why text)
), settled AS (
    UPDATE comparison c
       SET crashes = c.crashes + CASE f.verdict WHEN 'crashed' THEN 1 ELSE 0 END,
           verdict = CASE WHEN f.verdict <> 'crashed' OR c.crashes + 1 >= %(crashes)s
                          THEN f.verdict END,
           place = f.place, one_has = f.one_has, other_has = f.other_has, why = f.why
      FROM found f
     WHERE (c.bot, c.seq, c.one, c.other)
           = (f.bot, f.seq, decode(f.one, 'hex'), decode(f.other, 'hex')) AND c.verdict IS NULL
    RETURNING c.bot, c.seq, c.verdict
)
INSERT INTO pending SELECT bot, seq FROM settled WHERE verdict IS NOT NULL

-- name: forget_crashes
-- A retry compares anew.
DELETE FROM comparison WHERE bot = %(bot)s AND verdict = 'crashed'
