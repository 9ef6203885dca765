-- The last of what replicas print that somebody looks at on a page.  Apart from what commands follow,
-- so that neither moves what the other reads; a server that does not know it only shows nothing.
CREATE UNLOGGED TABLE shown_output (
    bot          bigint NOT NULL,
    seq          bigint NOT NULL,
    replica      int NOT NULL,
    stream       text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    begins       bigint NOT NULL DEFAULT 0,      -- bytes of the stream before the content
    content      bytea NOT NULL DEFAULT '',
    shown_until  timestamptz NOT NULL,           -- unless somebody looks again
    PRIMARY KEY (bot, seq, replica, stream)
);
