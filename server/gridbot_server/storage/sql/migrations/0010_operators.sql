-- What operators need after a year: clients and hosts are shut out, BOTs and files go away.

-- The key with which a client joined.  It outlives that key, but for pilots, whose `token` is the
-- key that they end with; stock clients send a key with each request instead.
ALTER TABLE client ADD COLUMN joined_with int REFERENCES token;
UPDATE client SET joined_with = token WHERE token IS NOT NULL;
CREATE INDEX client_joined_with ON client (joined_with) WHERE joined_with IS NOT NULL;  -- its end

-- A ban revokes the host's clients at its very time, by which they are known when it is lifted.
ALTER TABLE host ADD COLUMN banned_at timestamptz;
ALTER TABLE host ADD COLUMN banned_why text NOT NULL DEFAULT '';
CREATE INDEX client_host ON client (host);  -- a ban, and the clients of each host in their list

-- A deleted BOT is nobody's any more; its rows go in batches, its own last.
ALTER TABLE bot ADD COLUMN deleted_at timestamptz;
CREATE INDEX bot_deleted ON bot (id) WHERE deleted_at IS NOT NULL;  -- what is to go
-- Credit outlives the replicas that earned it: this much of the total.
ALTER TABLE host_credit ADD COLUMN of_deleted double precision NOT NULL DEFAULT 0;

-- Whether anything refers to a file of the store.
CREATE INDEX output_file ON output (sha256) WHERE content IS NULL;
CREATE INDEX job_files ON job USING gin (inputs jsonb_path_ops) WHERE inputs IS NOT NULL;

-- Of these files, by their hashes, those that nothing refers to.  Manifests, and what was signed for
-- BOINC clients, name their files by the hash.
CREATE FUNCTION unreferenced(hashes bytea[]) RETURNS SETOF bytea LANGUAGE sql STABLE AS $$
    WITH unread AS MATERIALIZED (
        SELECT hash FROM unnest(hashes) AS hash
         WHERE NOT EXISTS (SELECT FROM output WHERE sha256 = hash AND content IS NULL)
    ), named AS MATERIALIZED (
        SELECT DISTINCT decode(found[1], 'hex') AS hash
          FROM bot CROSS JOIN LATERAL
               regexp_matches(manifest || ' ' || coalesce(boinc, ''), '[0-9a-f]{64}', 'g') AS found
         WHERE EXISTS (SELECT FROM unread)
    )
    SELECT hash FROM unread
     WHERE NOT EXISTS (SELECT FROM named WHERE named.hash = unread.hash)
       AND NOT EXISTS (
           SELECT FROM job
            WHERE inputs IS NOT NULL AND inputs @> jsonb_build_array(
                  jsonb_build_object('sha256', encode(unread.hash, 'hex'))))
$$;
