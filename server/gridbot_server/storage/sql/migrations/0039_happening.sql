-- The history costs its writers one row without an index; a cycle adds up what they wrote.

-- What one transaction did: [{"bot": 7, "grid": "", "sent": 5}, ...], keys as the columns of
-- `bot_history`; {"bot": 7, "grid": "", "reason": "time_limit", "failed_replicas": 1} says why replicas failed,
-- {"requests": 3} how many host requests there were.
CREATE TABLE happening (
    at   timestamptz NOT NULL DEFAULT now(),
    what json NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);

DROP TABLE bot_history, failure_history, server_history;

-- BOT 0 is all of them.
CREATE TABLE bot_history (
    bot          bigint NOT NULL,
    step         int NOT NULL,               -- seconds: 60, 3600 or 86400
    at           timestamptz NOT NULL,       -- when the step began
    grid         text NOT NULL,              -- of the client; '' for machines that are no pilots
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
    PRIMARY KEY (bot, step, at, grid)
) WITH (fillfactor = 50);

CREATE INDEX bot_history_at ON bot_history (step, at);  -- sums, and what is kept no longer

-- Of `errors`: why.
CREATE TABLE failure_history (
    bot    bigint NOT NULL,
    step   int NOT NULL,
    at     timestamptz NOT NULL,
    grid   text NOT NULL,
    reason text NOT NULL,
    errors bigint NOT NULL,
    PRIMARY KEY (bot, step, at, grid, reason)
) WITH (fillfactor = 50);

CREATE INDEX failure_history_at ON failure_history (step, at);

-- The server's own figures.
CREATE TABLE server_history (
    step    int NOT NULL,
    at      timestamptz NOT NULL,
    name    text NOT NULL,
    label   text NOT NULL,                   -- a grid, a cycle, a class of requests; '' for none
    is_sum  boolean NOT NULL,                -- counted; else looked at, in longer steps the mean
    value   float8 NOT NULL,
    PRIMARY KEY (step, at, name, label)
) WITH (fillfactor = 50);

DELETE FROM history_sum WHERE step = 60;

-- What a BOT's page shows beside its curves, and when machines are there.

-- One failed replica for each reason, as it was first seen.
CREATE TABLE failure_example (
    bot         bigint NOT NULL,
    reason      text NOT NULL,
    at          timestamptz NOT NULL,
    seq         bigint NOT NULL,
    replica     int NOT NULL,
    host        bigint NOT NULL,
    grid        text NOT NULL,
    exit_code   int,
    stderr      text NOT NULL,   -- its end
    PRIMARY KEY (bot, reason)
);

-- The valid replicas that ran longest, ten of each BOT.
CREATE TABLE slowest_job (
    bot          bigint NOT NULL,
    seq          bigint NOT NULL,
    replica      int NOT NULL,
    host         bigint NOT NULL,
    grid         text NOT NULL,
    wall_seconds float8 NOT NULL,
    cpu_seconds  float8 NOT NULL,
    PRIMARY KEY (bot, seq)
);

-- From when to when a client on a host was heard of, and why it was not any more.
CREATE TABLE host_session (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host     bigint NOT NULL,
    client   bigint NOT NULL,
    grid     text NOT NULL,
    began_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    why      text NOT NULL CHECK (why IN ('left', 'silent', 'gone', 'banned', 'revoked', 'expired'))
);

CREATE INDEX host_session_host ON host_session (host, began_at);
CREATE INDEX host_session_ended ON host_session (ended_at);

ALTER TABLE client
    ADD COLUMN session_at timestamptz,  -- since when it has been heard of; null: it is not
    ADD COLUMN left_at    timestamptz;  -- when it said that it leaves
