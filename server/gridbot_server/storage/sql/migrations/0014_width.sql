-- What a newcomer gets is what it has proven: `matching/width.py` says how widths grow and fall.

-- Those who answer for each other's machines: all hosts of an owner, or all nodes of a grid.
ALTER TABLE host ADD COLUMN crew text GENERATED ALWAYS AS
    (CASE WHEN grid IS NULL THEN 'owner ' || owner::text ELSE 'grid ' || grid END) STORED;
ALTER TABLE host ADD COLUMN width real NOT NULL DEFAULT 8;

-- Without a row, a crew has the width of a newcomer.
CREATE TABLE crew (
    name  text PRIMARY KEY,
    width real NOT NULL
) WITH (fillfactor = 50);

-- Who has worked for the project before this was counted starts with what that has proven.
UPDATE host SET width = least(1024, 8 + proven.replicas)
  FROM (SELECT host, count(*) AS replicas FROM ended WHERE valid GROUP BY host) AS proven
 WHERE proven.host = host.id;
INSERT INTO crew (name, width)
SELECT crew, least(1024, sum(width)) FROM host GROUP BY crew HAVING max(width) > 8;

-- Replicas among strangers that are in progress, or whose answers nobody has judged yet.
CREATE TABLE unjudged (
    bot     bigint NOT NULL,
    seq     bigint NOT NULL,
    replica int NOT NULL,
    host    bigint NOT NULL,
    crew    text NOT NULL,
    PRIMARY KEY (bot, seq, replica)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX unjudged_host ON unjudged (host);
CREATE INDEX unjudged_crew ON unjudged (crew);
