-- What happened to each BOT, per minute and grid, and later per hour and day.  It outlives the BOT.

-- Each writer adds to rows of its own, in the transaction of what it counts, so that a sum over the
-- rows of a minute is what a count of the replicas and outcomes of that minute gives.
CREATE TABLE bot_history (
    bot          bigint NOT NULL,
    step         int NOT NULL,               -- seconds: 60, 3600 or 86400
    at           timestamptz NOT NULL,       -- when the step began
    grid         text NOT NULL,              -- of the client; '' for machines that are no pilots
    writer       text NOT NULL,              -- '' for the sums over hours and days
    added        bigint NOT NULL DEFAULT 0,  -- jobs that the BOT got
    sent         bigint NOT NULL DEFAULT 0,  -- replicas sent
    succeeded    bigint NOT NULL DEFAULT 0,  -- replicas that were reported as successes
    errors       bigint NOT NULL DEFAULT 0,  -- replicas that were reported as failures
    expired      bigint NOT NULL DEFAULT 0,  -- replicas whose deadline passed
    relinquished bigint NOT NULL DEFAULT 0,  -- replicas that came back unanswered before that
    cancelled    bigint NOT NULL DEFAULT 0,  -- replicas that nobody wanted any more
    late         bigint NOT NULL DEFAULT 0,  -- of `succeeded`: had expired, or come back, before
    void         bigint NOT NULL DEFAULT 0,  -- answers of an earlier version of the manifest
    done         bigint NOT NULL DEFAULT 0,  -- jobs done, on the grid of the canonical replica
    failed       bigint NOT NULL DEFAULT 0,  -- jobs that failed for good, on no grid
    retried      bigint NOT NULL DEFAULT 0,  -- of these: were tried again
    recalled     bigint NOT NULL DEFAULT 0,  -- provisional outcomes that were recalled, on no grid
    cpu_seconds  float8 NOT NULL DEFAULT 0,  -- of the replicas that were reported
    PRIMARY KEY (bot, step, at, grid, writer)
) WITH (fillfactor = 50);

CREATE INDEX bot_history_at ON bot_history (step, at);  -- sums, and what is kept no longer

-- Of `errors`: why.  The reasons of a BOT are few: what is beyond is counted as 'other'.
CREATE TABLE failure_history (
    bot    bigint NOT NULL,
    step   int NOT NULL,
    at     timestamptz NOT NULL,
    grid   text NOT NULL,
    writer text NOT NULL,
    reason text NOT NULL,
    errors bigint NOT NULL,
    PRIMARY KEY (bot, step, at, grid, writer, reason)
) WITH (fillfactor = 50);

CREATE INDEX failure_history_at ON failure_history (step, at);

-- The server's own figures, per minute: sums of what writers count, and what is looked at once.
CREATE TABLE server_history (
    step   int NOT NULL,
    at     timestamptz NOT NULL,
    name   text NOT NULL,
    label  text NOT NULL,                    -- a grid, a cycle, a class of requests; '' for none
    writer text NOT NULL,                    -- '' for what is looked at
    value  float8 NOT NULL,                  -- of what is looked at, in longer steps: the mean
    PRIMARY KEY (step, at, name, label, writer)
) WITH (fillfactor = 50);

-- Whose BOT it was, for those that are deleted.
CREATE TABLE deleted_bot (
    id         bigint PRIMARY KEY,
    owner      int NOT NULL,
    name       text NOT NULL,
    created_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    jobs_left  bigint NOT NULL               -- without an outcome when it was deleted
);

INSERT INTO deleted_bot (id, owner, name, created_at, ended_at, jobs_left)
SELECT id, owner, name, created_at, coalesce(ended_at, deleted_at), 0
  FROM bot WHERE deleted_at IS NOT NULL;

-- Until when the sums of a step are made.
CREATE TABLE history_sum (
    step  int PRIMARY KEY,
    until timestamptz NOT NULL
);

INSERT INTO history_sum
SELECT step, date_bin(make_interval(secs => step), now(), 'epoch'::timestamptz)
  FROM unnest(ARRAY[60, 3600, 86400]) AS step;

-- As `end_unanswered`, which servers of an earlier release call; it counts by BOT and grid.
CREATE FUNCTION leave_unanswered(gone lease[], ending text, because text)
RETURNS TABLE (bot bigint, grid text, replicas bigint) LANGUAGE sql AS $$
    INSERT INTO pending (bot, seq)
    SELECT l.bot, l.seq FROM unnest(gone) AS l WHERE ending <> 'cancelled';
    WITH put AS (
        INSERT INTO ended (bot, seq, replica, round, why, how, reason, client, host, owner, sent_at)
        SELECT l.bot, l.seq, l.replica, l.round, l.why, ending, because, l.client, l.host, l.owner,
               l.sent_at
          FROM unnest(gone) AS l
        RETURNING ended.bot, ended.client
    )
    SELECT put.bot, coalesce(c.grid, ''), count(*)
      FROM put LEFT JOIN client c ON c.id = put.client GROUP BY 1, 2
$$;
