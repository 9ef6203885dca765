-- The output of replicas that somebody follows, from where on it was not read yet.  It lies at the
-- client as well, so that nothing is lost with this table.
CREATE UNLOGGED TABLE live_output (
    bot            bigint NOT NULL,
    seq            bigint NOT NULL,
    replica        int NOT NULL,
    stream         text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    begins         bigint NOT NULL,              -- bytes of the stream before the content
    content        bytea NOT NULL DEFAULT '',
    followed_until timestamptz NOT NULL,         -- unless somebody asks again
    PRIMARY KEY (bot, seq, replica, stream)
);
