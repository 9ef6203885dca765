-- How many crews ask for work, and how many of them came just now; counting them took so long.
CREATE TABLE asking_crews (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    crews      bigint NOT NULL DEFAULT 0,
    new        bigint NOT NULL DEFAULT 0,
    counted_at timestamptz NOT NULL DEFAULT '-infinity',
    seconds    float8 NOT NULL DEFAULT 0
);
INSERT INTO asking_crews DEFAULT VALUES;
