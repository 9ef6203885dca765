-- name: jobs
SELECT j.bot, j.seq, j.args::text AS args, coalesce(j.inputs, '[]')::text AS inputs, '' AS proof
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN job j ON (j.bot, j.seq) = (x.bot, x.seq)

-- name: parts_of_range
-- Parts that overlap jobs lo .. hi-1; the one that begins before `lo` has at most 64 jobs.
SELECT bot, first, leaves, signature FROM job_part
 WHERE bot = %(bot)s AND first > %(lo)s - 64 AND first < %(hi)s AND signature IS NOT NULL

-- name: parts_of_jobs
SELECT DISTINCT ON (p.bot, p.first) p.bot, p.first, p.leaves, p.signature
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
 CROSS JOIN LATERAL (
       SELECT * FROM job_part
        WHERE job_part.bot = x.bot AND job_part.first <= x.seq
        ORDER BY job_part.first DESC LIMIT 1) AS p
 WHERE p.signature IS NOT NULL
