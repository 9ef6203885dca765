-- For backups of a server, and what is made of them.

-- name: named_files
-- The hashes of all content that the database names, in hex.
SELECT encode(sha256, 'hex') FROM blob

-- name: note_backup
INSERT INTO setting (name, value)
VALUES ('backup', json_build_object('made_at', now(), 'file', %(file)s::text)::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: tables
SELECT count(*) FROM information_schema.tables
 WHERE table_schema NOT IN ('pg_catalog', 'information_schema')

-- name: bots
SELECT count(*) FROM bot
