-- A file belongs to the owners who sent it whole, or whose BOTs returned it; nobody else may read it,
-- name it as an input, or learn that it is here.  The file store keeps one copy for all of them.
CREATE TABLE blob_owner (
    sha256  bytea NOT NULL REFERENCES blob ON DELETE CASCADE,
    owner   int NOT NULL REFERENCES owner,
    used_at timestamptz NOT NULL DEFAULT now(),    -- when the owner last sent or asked for it
    PRIMARY KEY (sha256, owner)
);

-- Of these files and their owners (two arrays of one length), those pairs where no BOT of the owner
-- refers to the file any more.
CREATE FUNCTION disused(owners int[], hashes bytea[]) RETURNS TABLE (owner int, sha256 bytea)
LANGUAGE sql STABLE AS $$
    WITH unread AS MATERIALIZED (
        SELECT holder, hash FROM unnest(owners, hashes) AS pair (holder, hash)
         WHERE NOT EXISTS (
               SELECT FROM output JOIN bot ON bot.id = output.bot
                WHERE output.sha256 = hash AND output.content IS NULL AND bot.owner = holder)
    ), named AS MATERIALIZED (
        SELECT DISTINCT bot.owner AS holder, decode(found[1], 'hex') AS hash
          FROM bot CROSS JOIN LATERAL regexp_matches(manifest, '[0-9a-f]{64}', 'g') AS found
         WHERE bot.owner IN (SELECT holder FROM unread)
    )
    SELECT holder, hash FROM unread
     WHERE NOT EXISTS (SELECT FROM named
                        WHERE named.holder = unread.holder AND named.hash = unread.hash)
       AND NOT EXISTS (
           SELECT FROM job JOIN bot ON bot.id = job.bot
            WHERE job.inputs IS NOT NULL AND bot.owner = unread.holder
              AND job.inputs @> jsonb_build_array(
                  jsonb_build_object('sha256', encode(unread.hash, 'hex'))))
$$;

-- Files that are here belong to the owners whose BOTs refer to them.
INSERT INTO blob_owner (sha256, owner)
SELECT DISTINCT blob.sha256, found.owner
  FROM (SELECT bot.owner, decode(input->>'sha256', 'hex') AS sha256
          FROM bot CROSS JOIN jsonb_array_elements(bot.manifest::jsonb->'inputs') AS input
        UNION ALL
        SELECT bot.owner, decode(input->>'sha256', 'hex')
          FROM job JOIN bot ON bot.id = job.bot CROSS JOIN jsonb_array_elements(job.inputs) AS input
         WHERE job.inputs IS NOT NULL
        UNION ALL
        SELECT bot.owner, output.sha256
          FROM output JOIN bot ON bot.id = output.bot
         WHERE output.content IS NULL) AS found
  JOIN blob USING (sha256);

-- The one file that pilots fetch with their key; null in keys of a constructor that names none.
ALTER TABLE token ADD COLUMN artefact bytea;
