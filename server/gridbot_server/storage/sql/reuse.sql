-- name: unseen
-- BOTs of a derivation, with their outcomes that are not entered yet.
SELECT b.id AS bot, coalesce(s.upto, 0) AS seen, b.outcomes AS upto
  FROM bot b LEFT JOIN derivation_seen s ON s.bot = b.id
 WHERE b.derivation = %(derivation)s AND b.deleted_at IS NULL AND b.outcomes > coalesce(s.upto, 0)
 ORDER BY b.id

-- name: enter
INSERT INTO derived (key, bot, seq)
SELECT derivation_key(%(derivation)s, job.args, job.inputs), o.bot, o.seq
  FROM outcome o JOIN job ON (job.bot, job.seq) = (o.bot, o.seq)
 WHERE o.bot = %(bot)s AND o.n > %(seen)s AND o.n <= %(upto)s AND o.canonical IS NOT NULL
   AND NOT EXISTS (SELECT FROM invalidated i WHERE (i.bot, i.seq) = (o.bot, o.seq))
ON CONFLICT DO NOTHING

-- name: mark_seen
INSERT INTO derivation_seen (bot, upto) VALUES (%(bot)s, %(upto)s)
ON CONFLICT (bot) DO UPDATE SET upto = greatest(derivation_seen.upto, excluded.upto)

-- name: find
-- The latest outcome that is at least as sure as it is asked for here, for jobs that nobody has had.
-- What strangers answered is nothing for a BOT that only trusted hosts may run, also if its
-- signature was taken back since.
WITH fresh AS MATERIALIZED (
    SELECT seq, derivation_key(%(derivation)s, args, inputs) AS key FROM job
     WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(end)s
       AND NOT EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq) = (job.bot, job.seq))
       AND NOT EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq) = (job.bot, job.seq))
), mine AS MATERIALIZED (
    SELECT owner, quorum, assurance, validator,
           signature IS NOT NULL OR boinc IS NOT NULL AS among_strangers
      FROM bot WHERE id = %(bot)s
)
INSERT INTO reused (bot, seq, from_bot, from_seq)
SELECT DISTINCT ON (fresh.seq) %(bot)s, fresh.seq, d.bot, d.seq
  FROM mine CROSS JOIN fresh
  JOIN derived d ON d.key = fresh.key
  JOIN bot b ON b.id = d.bot AND b.owner = mine.owner AND b.deleted_at IS NULL
           AND b.quorum >= mine.quorum
           AND coalesce(b.assurance, %(usual)s) >= coalesce(mine.assurance, %(usual)s)
           AND (mine.quorum = 1 OR b.validator = mine.validator)
           AND (mine.among_strangers OR b.signature IS NULL AND b.boinc IS NULL
                AND b.signed_with IS NULL AND b.derivation IS NOT NULL)
  JOIN outcome o ON (o.bot, o.seq) = (d.bot, d.seq) AND o.canonical IS NOT NULL
 ORDER BY fresh.seq, d.bot DESC, d.seq DESC

-- name: hold_files
-- What they returned stays until this is committed, and then as files of these jobs.
SELECT x.sha256 FROM blob_owner x JOIN blob USING (sha256)
 WHERE x.owner = %(owner)s AND x.sha256 IN (
       SELECT output.sha256
         FROM reused r
         JOIN outcome o ON (o.bot, o.seq) = (r.from_bot, r.from_seq)
         JOIN output ON (output.bot, output.seq, output.replica) = (o.bot, o.seq, o.canonical)
        WHERE r.bot = %(bot)s AND r.seq >= %(first)s AND r.seq < %(end)s AND output.content IS NULL)
   FOR KEY SHARE OF x, blob

-- name: drop_incomplete
-- Those of which a file is gone.
DELETE FROM reused r
 USING outcome o, output
 WHERE r.bot = %(bot)s AND r.seq >= %(first)s AND r.seq < %(end)s
   AND (o.bot, o.seq) = (r.from_bot, r.from_seq)
   AND (output.bot, output.seq, output.replica) = (o.bot, o.seq, o.canonical)
   AND output.content IS NULL AND output.sha256 <> ALL(%(hashes)s::bytea[])

-- name: copy_outputs
INSERT INTO output (bot, seq, replica, name, sha256, size, content)
SELECT r.bot, r.seq, 1, output.name, output.sha256, output.size, output.content
  FROM reused r
  JOIN outcome o ON (o.bot, o.seq) = (r.from_bot, r.from_seq)
  JOIN output ON (output.bot, output.seq, output.replica) = (o.bot, o.seq, o.canonical)
 WHERE r.bot = %(bot)s AND r.seq >= %(first)s AND r.seq < %(end)s

-- name: give_outcomes
INSERT INTO outcome (bot, seq, round, canonical, n, credit)
SELECT bot, seq, 0, 1, %(last)s + row_number() OVER (ORDER BY seq), 0
  FROM reused WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(end)s

-- name: give_events
INSERT INTO result_event (bot, n, seq, kind, replica)
SELECT bot, %(last)s + row_number() OVER (ORDER BY seq), seq, 'confirmed', 1
  FROM reused WHERE bot = %(bot)s AND seq >= %(first)s AND seq < %(end)s

-- name: count_reused
UPDATE bot SET reused = reused + %(jobs)s WHERE id = %(bot)s

-- name: reuses
SELECT derivation, owner, size, signature IS NOT NULL OR boinc IS NOT NULL AS among_strangers
  FROM bot WHERE id = %(bot)s AND reuse AND derivation IS NOT NULL
