-- A program that compares the answers of a BOT, by its hash; and who may bring one, because it runs
-- on the server's machine.
ALTER TABLE bot ADD COLUMN compare_with bytea;
ALTER TABLE owner ADD COLUMN may_compare boolean NOT NULL DEFAULT false;

-- Such a program is a file that its BOT refers to.
CREATE OR REPLACE FUNCTION disused(owners int[], hashes bytea[]) RETURNS TABLE (owner int, sha256 bytea)
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
