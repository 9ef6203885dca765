-- The kind of host to which the replicas of a job are bound: what its BOT's HomogeneousBy gave for the
-- first one.  Only for BOTs whose policy has it.
CREATE TABLE job_kind (
    bot  bigint NOT NULL,
    seq  bigint NOT NULL,
    kind text NOT NULL,
    PRIMARY KEY (bot, seq)
);
