-- The shape: rows are inserted and deleted, never moved through an indexed state column
-- (HOT updates stay possible and vacuum stays cheap).  All times are the database's.

CREATE TABLE setting (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- It rises when the database is restored from a backup, so that clients reconcile.
INSERT INTO setting VALUES ('epoch', '1');

-- Tells this database from another one that a machine's scheduling buffer may have served.
INSERT INTO setting VALUES ('database', gen_random_uuid()::text);

-- ---------------------------------------------------------------- people and machines

CREATE TABLE owner (
    id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$'),
    operator   boolean NOT NULL DEFAULT false,
    share      real NOT NULL DEFAULT 1 CHECK (share > 0),   -- the operator's share of the hosts
    max_jobs   bigint NOT NULL DEFAULT 20000000,            -- quota: jobs in unfinished BOTs
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Keys are kept as SHA-256 only; they are random, so no slow hash is needed.
CREATE TABLE token (
    id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash       bytea NOT NULL UNIQUE,
    owner      int NOT NULL REFERENCES owner,
    scope      text NOT NULL CHECK (scope IN ('operator', 'user', 'join')),
    grid       text,
    label      text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);

-- The machine: its statistics survive the clients on it (paper section 6.5).
CREATE TABLE host (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity        text NOT NULL UNIQUE,          -- owner or grid, and the MAC address
    owner           int NOT NULL REFERENCES owner,
    ad              jsonb NOT NULL DEFAULT '{}',   -- as the host last described itself
    error_rate      real NOT NULL DEFAULT 0.1,     -- moving average; an unknown host is not reliable yet
    mean_turnaround real,                          -- seconds from sending to a valid report
    jobs_today      int NOT NULL DEFAULT 0,        -- valid replicas on the day `jobs_day`
    jobs_day        date NOT NULL DEFAULT current_date,
    recent_cpu      double precision NOT NULL DEFAULT 0,  -- CPU seconds that gave valid outputs, decaying
    recent_at       timestamptz NOT NULL DEFAULT now(),
    created_at      timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- One running instance of a client on a host.
CREATE TABLE client (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash       bytea NOT NULL UNIQUE,              -- SHA-256 of its token
    host       bigint NOT NULL REFERENCES host,
    owner      int NOT NULL REFERENCES owner,
    accepts    int[] NOT NULL DEFAULT '{}',        -- further owners whose unsigned BOTs it runs
    grid       text,
    seqno      bigint NOT NULL DEFAULT -1,
    last_key   text NOT NULL DEFAULT '',
    seen_at    timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- ------------------------------------------------------------------------ BOTs and jobs

-- open: jobs are still being added; done: every job has an outcome.
CREATE TABLE bot (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner          int NOT NULL REFERENCES owner,
    name           text NOT NULL,
    submit_key     text NOT NULL,                  -- a repeated submission finds its BOT by it
    state          text NOT NULL DEFAULT 'open'
                   CHECK (state IN ('open', 'running', 'done', 'cancelled')),
    policy         text NOT NULL DEFAULT '',
    policy_version int NOT NULL DEFAULT 1,         -- rises with any change dispatch must see
    round          int NOT NULL DEFAULT 0,         -- rises with every retry of failed jobs
    manifest       text NOT NULL,
    signature      bytea,                          -- the project key's, over the manifest
    quorum         int NOT NULL DEFAULT 1 CHECK (quorum BETWEEN 1 AND 10),
    validator      text NOT NULL DEFAULT 'exact',
    max_attempts   int NOT NULL DEFAULT 3 CHECK (max_attempts BETWEEN 1 AND 100),
    max_replicas   int NOT NULL DEFAULT 5 CHECK (max_replicas BETWEEN 1 AND 50),
    tail_threshold int CHECK (tail_threshold >= 0), -- unsent jobs; null = automatic
    tail_sticky    boolean NOT NULL DEFAULT true,
    tail           boolean NOT NULL DEFAULT false,
    size           bigint NOT NULL DEFAULT 0,      -- jobs
    fed            bigint NOT NULL DEFAULT 0,      -- jobs below it were claimed by some feeder
    outcomes       bigint NOT NULL DEFAULT 0,      -- last number given to an outcome
    done           bigint NOT NULL DEFAULT 0,
    failed         bigint NOT NULL DEFAULT 0,
    turnaround_sum double precision NOT NULL DEFAULT 0,  -- seconds, over valid replicas
    turnaround_n   bigint NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT now(),
    ended_at       timestamptz,
    UNIQUE (owner, submit_key)
) WITH (fillfactor = 50);

-- The feeder, the cycles and the lists look at unfinished BOTs only.
CREATE INDEX bot_unfinished ON bot (id) WHERE state = 'running';

-- No foreign key: checking it would nearly double the time of inserting a BOT, and jobs are only
-- ever added under the lock of their BOT's row.
CREATE TABLE job (
    bot    bigint NOT NULL,
    seq    bigint NOT NULL,
    args   jsonb NOT NULL,
    inputs jsonb,                                  -- the job's own files; null for none
    PRIMARY KEY (bot, seq)
);

-- ---------------------------------------------------------------------------- replicas

-- A replica in progress, and only those.
CREATE TABLE lease (
    bot         bigint NOT NULL,
    seq         bigint NOT NULL,
    replica     int NOT NULL,
    round       int NOT NULL,
    why         text NOT NULL,
    client      bigint NOT NULL,
    host        bigint NOT NULL,
    owner       int NOT NULL,
    sent_at     timestamptz NOT NULL DEFAULT now(),
    deadline    timestamptz NOT NULL,
    request_key text NOT NULL,
    PRIMARY KEY (bot, seq, replica)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX lease_client ON lease (client);       -- what a client holds, at every request
CREATE INDEX lease_deadline ON lease (deadline);   -- deadline cycle

-- A replica that is no longer in progress.  `valid` is null until it is judged.
CREATE TABLE ended (
    bot          bigint NOT NULL,
    seq          bigint NOT NULL,
    replica      int NOT NULL,
    round        int NOT NULL,
    why          text NOT NULL,
    how          text NOT NULL CHECK (how IN ('success', 'error', 'expired', 'lost', 'cancelled')),
    reason       text NOT NULL DEFAULT '',
    client       bigint NOT NULL,
    host         bigint NOT NULL,
    owner        int NOT NULL,
    sent_at      timestamptz NOT NULL,
    ended_at     timestamptz NOT NULL DEFAULT now(),
    exit_code    int,
    cpu_seconds  real,
    wall_seconds real,
    digest       bytea,                            -- of its outputs' names and hashes
    stdout       text,
    stderr       text,
    valid        boolean,
    PRIMARY KEY (bot, seq, replica)
);

-- Every unsent copy after the first.  A feeder marks those in its buffer as its own for a while.
CREATE TABLE requeue (
    bot           bigint NOT NULL,
    seq           bigint NOT NULL,
    replica       int NOT NULL,
    round         int NOT NULL,
    why           text NOT NULL,
    prio          int NOT NULL DEFAULT 0,
    pool          text,                            -- 'dedicated': only such hosts may have it
    not_before    timestamptz NOT NULL DEFAULT now(),
    machine       text,
    claimed_until timestamptz,
    PRIMARY KEY (bot, seq, replica)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX requeue_order ON requeue (bot, prio DESC, not_before);  -- feeder

-- Jobs that need a decision, written in the transaction that caused it.  No key on purpose: an
-- unseen duplicate is harmless, while a conflict with a row being consumed would lose a wake-up.
CREATE TABLE pending (
    bot bigint NOT NULL,
    seq bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- A finished job: its canonical replica, or the reason why it failed for good.  `n` numbers the
-- outcomes of a BOT in the order in which they became visible: the cursor of its results.
CREATE TABLE outcome (
    bot       bigint NOT NULL,
    seq       bigint NOT NULL,
    round     int NOT NULL,
    canonical int,
    reason    text,
    n         bigint NOT NULL,
    made_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, seq),
    CHECK ((canonical IS NULL) <> (reason IS NULL))
);

CREATE UNIQUE INDEX outcome_n ON outcome (bot, n);

-- ------------------------------------------------------------------- feeders and counters

-- Unsent first copies that a feeder holds: jobs lo .. hi-1.  Renewed by its heartbeat.
CREATE TABLE feed_range (
    bot        bigint NOT NULL REFERENCES bot,
    lo         bigint NOT NULL,
    hi         bigint NOT NULL CHECK (hi > lo),
    machine    text NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (bot, lo)
);

-- Counters, one set of rows per writing process, summed on read:
-- sent_WHY (leases made), back (leases gone), queued and unqueued (rows of requeue).
CREATE TABLE bot_stat (
    bot    bigint NOT NULL,
    writer text NOT NULL,
    name   text NOT NULL,
    value  bigint NOT NULL,
    PRIMARY KEY (bot, writer, name)
) WITH (fillfactor = 50);

-- What the counters of a BOT come to: first copies sent, all replicas sent, those that came back,
-- and rows of requeue.  A function, because PostgreSQL inlines it per BOT.
CREATE FUNCTION bot_count(wanted bigint)
RETURNS TABLE (first bigint, sent bigint, back bigint, queued bigint)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(value) FILTER (WHERE name = 'sent_first'), 0)::bigint,
           coalesce(sum(value) FILTER (WHERE starts_with(name, 'sent_')), 0)::bigint,
           coalesce(sum(value) FILTER (WHERE name = 'back'), 0)::bigint,
           coalesce(sum(CASE name WHEN 'queued' THEN value WHEN 'unqueued' THEN -value END), 0)::bigint
      FROM bot_stat WHERE bot = wanted
$$;

-- -------------------------------------------------------------------------------- files

-- Content in the file store, by hash; MD5 at ingest because BOINC speaks it.
CREATE TABLE blob (
    sha256     bytea PRIMARY KEY,
    md5        bytea NOT NULL,
    size       bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- A file that a replica returned; `content` is null when it lies in the file store.
CREATE TABLE output (
    bot     bigint NOT NULL,
    seq     bigint NOT NULL,
    replica int NOT NULL,
    name    text NOT NULL,
    sha256  bytea NOT NULL,
    size    bigint NOT NULL,
    content bytea,
    PRIMARY KEY (bot, seq, replica, name)
);
