-- For backups of a server, and what is made of them.

-- name: named_files
-- The hashes of all content that the database names, in hex.
SELECT encode(sha256, 'hex') FROM blob

-- name: whose_content
-- Of content: how much it is, who sent it or had it as a result, and of which BOTs' results it is.
SELECT encode(b.sha256, 'hex') AS sha256, b.size AS bytes,
       ARRAY(SELECT o.name FROM blob_owner w JOIN owner o ON o.id = w.owner
              WHERE w.sha256 = b.sha256 ORDER BY o.name) AS owners,
       ARRAY(SELECT DISTINCT t.bot FROM output t WHERE t.sha256 = b.sha256 ORDER BY t.bot) AS bots
  FROM unnest(%(hashes)s::text[]) AS hash JOIN blob b ON b.sha256 = decode(hash, 'hex')
 ORDER BY hash

-- name: note_backup
INSERT INTO setting (name, value)
VALUES ('backup', json_build_object('made_at', now(), 'file', %(file)s::text)::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: tables
SELECT count(*) FROM information_schema.tables
 WHERE table_schema NOT IN ('pg_catalog', 'information_schema')

-- name: bots
SELECT count(*) FROM bot
