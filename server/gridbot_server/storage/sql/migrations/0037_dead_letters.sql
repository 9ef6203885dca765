-- Jobs that could not be decided by an error of the server's own, which hold up no others.
CREATE TABLE dead_letter (
    bot   bigint NOT NULL,
    seq   bigint NOT NULL,
    error text NOT NULL,
    at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, seq)
);
