-- Checkpoints of jobs that are left: the latest one of each machine that has run the job.
CREATE TABLE checkpoint (
    bot       bigint NOT NULL,
    seq       bigint NOT NULL,
    host      bigint NOT NULL,
    replica   int NOT NULL,      -- that sent it
    round     int NOT NULL,      -- of that replica; others do not go on from it
    number    bigint NOT NULL,   -- rises along a chain of checkpoints, over all machines
    is_shared boolean NOT NULL,  -- other machines may go on from it
    sha256    bytea NOT NULL,    -- in the file store; no row of `blob`: it goes with this one
    size      bigint NOT NULL,
    made_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, seq, host)
);

CREATE INDEX checkpoint_file ON checkpoint (sha256);

-- How far a replica is, from 0 to 1, as its program last told; and what it told first, and when.
ALTER TABLE lease ADD COLUMN progress real, ADD COLUMN progress_first real,
                  ADD COLUMN progress_since timestamptz;
