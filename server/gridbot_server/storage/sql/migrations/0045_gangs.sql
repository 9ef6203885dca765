-- Gangs: `together` consecutive jobs of a BOT run at the same time, or not at all.
ALTER TABLE bot ADD COLUMN together int NOT NULL DEFAULT 1 CHECK (together BETWEEN 1 AND 128),
                ADD COLUMN gather_seconds real NOT NULL DEFAULT 60;

-- A gang of which some job is leased.  It is deleted when the gang begins anew, or has its outcomes.
CREATE TABLE gang (
    bot          bigint NOT NULL,
    number       bigint NOT NULL,                      -- jobs number * size, and so on
    size         int NOT NULL,
    since        timestamptz NOT NULL DEFAULT now(),
    gather_until timestamptz,                          -- null: all have arrived, so they run
    is_whole     boolean NOT NULL DEFAULT false,       -- all are leased
    PRIMARY KEY (bot, number)
);

CREATE INDEX gang_gathers ON gang (gather_until) WHERE gather_until IS NOT NULL;

-- Members that are ready to start.
CREATE TABLE arrival (
    bot     bigint NOT NULL,
    number  bigint NOT NULL,
    seq     bigint NOT NULL,
    replica int NOT NULL,
    address text NOT NULL,   -- HOST:PORT, for the other members
    run     text NOT NULL,   -- chance: a client that lost its member and comes again has another one
    PRIMARY KEY (bot, seq),
    FOREIGN KEY (bot, number) REFERENCES gang ON DELETE CASCADE
);

-- BOTs whose gangs gathered in vain, so that others may gather now.
CREATE TABLE gang_rest (
    bot          bigint PRIMARY KEY,
    times        int NOT NULL,           -- in a row
    rests_until  timestamptz NOT NULL
);

-- News of a gang are those of a BOT with a negative number, of which there is none.
CREATE FUNCTION gang_news(bot bigint, number bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT -(bot << 24 | number)
$$;

CREATE FUNCTION tell_gang(bot bigint, number bigint) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('gridbot_news', gang_news(bot, number) || ' false')
$$;
