-- Answers that the owner of a BOT knows beforehand.

-- name: insert_answers
INSERT INTO known_answer (bot, seq, digest)
SELECT %(bot)s, seq, decode(digest, 'hex')
  FROM json_to_recordset(%(answers)s) AS x (seq bigint, digest text)

-- name: copy_outputs
COPY known_output (bot, seq, name, sha256, size, content) FROM STDIN

-- name: beyond
SELECT seq FROM known_answer WHERE bot = %(bot)s AND seq >= %(jobs)s ORDER BY seq LIMIT 1

-- name: known
-- What is known of these jobs.
SELECT k.bot, k.seq, k.digest
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN known_answer k ON (k.bot, k.seq) = (x.bot, x.seq)
