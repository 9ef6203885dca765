-- A retry may give a BOT another version of its manifest, which begins with a round.
ALTER TABLE bot
    ADD COLUMN manifest_version int NOT NULL DEFAULT 1,
    ADD COLUMN first_round      int NOT NULL DEFAULT 0;  -- of this version

-- All versions of BOTs that have more than one.
CREATE TABLE bot_manifest (
    bot         bigint NOT NULL REFERENCES bot ON DELETE CASCADE,
    version     int NOT NULL,
    first_round int NOT NULL,
    manifest    text NOT NULL,
    retried     bigint NOT NULL DEFAULT 0,  -- failed jobs that it began with
    made_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, version)
);

-- The version of the manifest that a replica of a round runs.
CREATE FUNCTION version_of(wanted bigint, round int) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT coalesce(max(version), 1) FROM bot_manifest
     WHERE bot = wanted AND first_round <= version_of.round
$$;

-- Files that an earlier version names are in use as well.
CREATE OR REPLACE FUNCTION disused(owners int[], hashes bytea[]) RETURNS TABLE (owner int, sha256 bytea)
LANGUAGE sql STABLE AS $$
    WITH unread AS MATERIALIZED (
        SELECT holder, hash FROM unnest(owners, hashes) AS pair (holder, hash)
         WHERE NOT EXISTS (
               SELECT FROM output JOIN bot ON bot.id = output.bot
                WHERE output.sha256 = hash AND output.content IS NULL AND bot.owner = holder)
           AND NOT EXISTS (
               SELECT FROM known_output k JOIN bot ON bot.id = k.bot
                WHERE k.sha256 = hash AND k.content IS NULL AND bot.owner = holder)
    ), named AS MATERIALIZED (
        SELECT DISTINCT holder, decode(found[1], 'hex') AS hash
          FROM (SELECT bot.owner AS holder, manifest FROM bot
                 UNION ALL
                SELECT bot.owner, m.manifest FROM bot_manifest m JOIN bot ON bot.id = m.bot) AS texts
         CROSS JOIN LATERAL regexp_matches(manifest, '[0-9a-f]{64}', 'g') AS found
         WHERE holder IN (SELECT holder FROM unread)
    )
    SELECT holder, hash FROM unread
     WHERE NOT EXISTS (SELECT FROM bot
                        WHERE bot.owner = unread.holder AND bot.compare_with = unread.hash)
       AND NOT EXISTS (SELECT FROM named
                        WHERE named.holder = unread.holder AND named.hash = unread.hash)
       AND NOT EXISTS (
           SELECT FROM job JOIN bot ON bot.id = job.bot
            WHERE job.inputs IS NOT NULL AND bot.owner = unread.holder
              AND job.inputs @> jsonb_build_array(
                  jsonb_build_object('sha256', encode(unread.hash, 'hex'))))
$$;
