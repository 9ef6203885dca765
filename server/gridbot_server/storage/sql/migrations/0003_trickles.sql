-- The last message of a stock client's program to its project, while the replica ran.
CREATE TABLE boinc_trickle (
    bot     bigint NOT NULL,
    seq     bigint NOT NULL,
    replica int NOT NULL,
    said_at bigint NOT NULL,  -- by the client's clock, s since 1970
    said    text NOT NULL,
    PRIMARY KEY (bot, seq, replica)
);
