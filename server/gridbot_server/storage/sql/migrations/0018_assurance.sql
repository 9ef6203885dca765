-- Answers from strangers: what is provisional, and why it is believed (`cycles/assurance.py`).

ALTER TABLE bot ADD COLUMN assurance real CHECK (assurance >= 0.5 AND assurance < 1);
ALTER TABLE bot ADD COLUMN program bytea NOT NULL DEFAULT '';  -- what its hosts prove themselves with
ALTER TABLE bot ADD COLUMN provisional bigint NOT NULL DEFAULT 0;  -- jobs with such an outcome
ALTER TABLE bot ADD COLUMN events bigint NOT NULL DEFAULT 0;       -- last number given to an event
ALTER TABLE bot ADD COLUMN doubt double precision NOT NULL DEFAULT 0;  -- summed over its outcomes

-- Decides which answers of trusted hosts are checked; nobody outside may know.
INSERT INTO setting VALUES ('coins', gen_random_uuid()::text || gen_random_uuid()::text);

-- What the checked answers of a host, or of its crew, have proven with a program.
CREATE TABLE track_record (
    who     text NOT NULL,                 -- 'host 5', or a crew
    program bytea NOT NULL,
    streak  int NOT NULL,                  -- right ones since it was caught last
    caught  int NOT NULL,
    good    bigint NOT NULL,               -- right ones ever
    wrong   bigint NOT NULL,
    PRIMARY KEY (who, program)
) WITH (fillfactor = 50);

-- How often two crews proved each other right while neither was trusted.
CREATE TABLE mutual_agreement (
    program bytea NOT NULL,
    one     text NOT NULL,                 -- the lesser name of the two
    other   text NOT NULL,
    times   int NOT NULL,
    PRIMARY KEY (program, one, other)
);

-- A replica that a provisional outcome relies on.
CREATE TABLE provisional (
    bot       bigint NOT NULL,
    seq       bigint NOT NULL,
    replica   int NOT NULL,
    host      bigint NOT NULL,
    ended_at  timestamptz NOT NULL,
    passed    int NOT NULL DEFAULT 0,      -- checks of later answers of its host
    is_lone   boolean NOT NULL,            -- no other replica agrees with it
    is_canonical boolean NOT NULL,
    is_due    boolean NOT NULL DEFAULT false,
    made_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, seq, replica)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX provisional_host ON provisional (host);

-- What became of the outcomes of a BOT whose answers come from strangers, in order.
CREATE TABLE result_event (
    bot     bigint NOT NULL,
    n       bigint NOT NULL,
    seq     bigint NOT NULL,
    kind    text NOT NULL CHECK (kind IN ('provisional', 'recalled', 'confirmed', 'failed')),
    replica int,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, n)
);
