-- Clients that are not heard of as often as they were told to ask.

ALTER TABLE client
    ADD COLUMN contact_seconds real,         -- within which the client asks again; null: nobody knows
    ADD COLUMN silent_since    timestamptz;  -- found to be silent; its next request takes it away

CREATE INDEX client_silent ON client (id) WHERE silent_since IS NOT NULL;

-- Of a BOT: replicas of silent clients, jobs that nobody else holds, and queued copies of these.
CREATE FUNCTION silent_count(wanted bigint)
RETURNS TABLE (replicas bigint, jobs bigint, queued bigint)
LANGUAGE sql STABLE AS $$
    SELECT s.replicas, s.jobs, CASE WHEN s.jobs = 0 THEN 0 ELSE (
           SELECT count(*) FROM requeue q WHERE q.bot = wanted AND q.why = 'silent') END
      FROM (SELECT count(*) AS replicas, count(DISTINCT l.seq) FILTER (WHERE NOT EXISTS (
                   SELECT FROM lease o JOIN client h ON h.id = o.client
                    WHERE (o.bot, o.seq) = (l.bot, l.seq) AND h.silent_since IS NULL)) AS jobs
              FROM client c JOIN lease l ON l.client = c.id AND l.bot = wanted
             WHERE c.silent_since IS NOT NULL) AS s
$$;
