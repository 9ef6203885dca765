-- name: makers
-- Jobs of an owner whose confirmed answers have this content.
SELECT b.id AS bot, b.name, o.seq, output.name AS output, output.size, e.ended_at,
       coalesce(host.ad->>'Name', host.id::text) AS host,
       coalesce(m.manifest, b.manifest) AS manifest, job.args::text AS args,
       coalesce(job.inputs, '[]')::text AS inputs, r.from_bot, r.from_seq,
       i.bot IS NOT NULL AS is_invalidated
  FROM output
  JOIN outcome o ON (o.bot, o.seq, o.canonical) = (output.bot, output.seq, output.replica)
  JOIN bot b ON b.id = o.bot AND b.deleted_at IS NULL
  JOIN ended e ON (e.bot, e.seq, e.replica) = (o.bot, o.seq, o.canonical)
  JOIN job ON (job.bot, job.seq) = (o.bot, o.seq)
  LEFT JOIN bot_manifest m ON m.bot = b.id AND m.version = version_of(b.id, e.round)
  LEFT JOIN host ON host.id = e.host
  LEFT JOIN reused r ON (r.bot, r.seq) = (o.bot, o.seq)
  LEFT JOIN invalidated i ON (i.bot, i.seq) = (o.bot, o.seq)
 WHERE b.owner = %(owner)s AND output.sha256 = %(hash)s
   AND CASE WHEN %(bots)s::bigint[] IS NULL THEN output.content IS NULL
            ELSE output.bot = ANY(%(bots)s) END
 ORDER BY b.id DESC, o.seq LIMIT %(most)s

-- name: latest_bots
-- Small contents have no index, so that reports pay for none: they are looked for here.
SELECT id FROM bot WHERE owner = %(owner)s AND deleted_at IS NULL ORDER BY id DESC LIMIT %(most)s

-- name: users
-- Jobs with an outcome that read one of these files.
SELECT o.bot, o.seq
  FROM unnest(%(hashes)s::text[]) AS hash
  JOIN job ON job.inputs @> jsonb_build_array(jsonb_build_object('sha256', hash))
  JOIN bot b ON b.id = job.bot AND b.owner = %(owner)s AND b.deleted_at IS NULL
  JOIN outcome o ON (o.bot, o.seq) = (job.bot, job.seq) AND o.canonical IS NOT NULL
 UNION
SELECT o.bot, o.seq
  FROM bot b JOIN outcome o ON o.bot = b.id AND o.canonical IS NOT NULL
 WHERE b.owner = %(owner)s AND b.deleted_at IS NULL
   AND EXISTS (SELECT FROM unnest(%(hashes)s::text[]) AS hash WHERE strpos(b.manifest, hash) > 0)

-- name: invalidate
-- With those that have their outcomes from them.
WITH RECURSIVE named AS (
    SELECT x.bot, x.seq FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
     UNION
    SELECT r.bot, r.seq FROM named JOIN reused r ON (r.from_bot, r.from_seq) = (named.bot, named.seq)
), gone AS (
    DELETE FROM derived d USING named WHERE (d.bot, d.seq) = (named.bot, named.seq)
), made AS (
    INSERT INTO invalidated (bot, seq) SELECT bot, seq FROM named
    ON CONFLICT DO NOTHING RETURNING bot, seq
)
SELECT bot, seq FROM made ORDER BY bot, seq

-- name: outputs
SELECT DISTINCT encode(output.sha256, 'hex') AS sha256
  FROM json_to_recordset(%(jobs)s) AS x (bot bigint, seq bigint)
  JOIN outcome o ON (o.bot, o.seq) = (x.bot, x.seq)
  JOIN output ON (output.bot, output.seq, output.replica) = (o.bot, o.seq, o.canonical)
