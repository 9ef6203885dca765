-- Results of jobs that a BOT's owner had before: hosts are judged by them, and never told of them.
CREATE TABLE known_answer (
    bot    bigint NOT NULL,
    seq    bigint NOT NULL,
    digest bytea NOT NULL,                 -- as an answer's: over the names and contents of its outputs
    PRIMARY KEY (bot, seq)
);
CREATE TABLE known_output (
    bot     bigint NOT NULL,
    seq     bigint NOT NULL,
    name    text NOT NULL,
    sha256  bytea NOT NULL,
    size    bigint,                        -- null: only the hash is known
    content bytea,                         -- null: it lies in the file store, if the size is known
    PRIMARY KEY (bot, seq, name)
);
CREATE INDEX known_output_file ON known_output (sha256) WHERE content IS NULL;

-- Such a file is one that its BOT refers to.
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
        SELECT DISTINCT bot.owner AS holder, decode(found[1], 'hex') AS hash
          FROM bot CROSS JOIN LATERAL regexp_matches(manifest, '[0-9a-f]{64}', 'g') AS found
         WHERE bot.owner IN (SELECT holder FROM unread)
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
