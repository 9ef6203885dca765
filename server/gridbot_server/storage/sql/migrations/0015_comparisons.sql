-- Two answers of a job whose contents are compared, by their digests, the lesser first.  Without a
-- verdict the comparison is due; a crash leaves it due, a second one is a verdict.
CREATE TABLE comparison (
    bot       bigint NOT NULL,
    seq       bigint NOT NULL,
    one       bytea NOT NULL,
    other     bytea NOT NULL,
    verdict   text CHECK (verdict IN ('equal', 'different', 'crashed')),
    crashes   int NOT NULL DEFAULT 0,
    place     text NOT NULL DEFAULT '',            -- where they differ
    one_has   text NOT NULL DEFAULT '',            -- there
    other_has text NOT NULL DEFAULT '',
    why       text NOT NULL DEFAULT '',            -- the rule that this breaks, or of the last crash
    asked_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, seq, one, other)
) WITH (fillfactor = 70);

CREATE INDEX comparison_due ON comparison (bot, asked_at) WHERE verdict IS NULL;
