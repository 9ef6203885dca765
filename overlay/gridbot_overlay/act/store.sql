-- name: migration 1
-- One file in the overlay's folder, whose user_version is the last migration that it had.
-- Columns of pilot are the fields of model.Pilot.  Files of before there were versions have 0.
CREATE TABLE IF NOT EXISTS overlay (instance TEXT NOT NULL, sequence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS grid (
    name TEXT PRIMARY KEY,
    drained TEXT NOT NULL DEFAULT '',       -- '', 'finish': what runs may end, 'now'
    resumed_at REAL NOT NULL DEFAULT 0,     -- failures before are forgiven
    used_hours REAL NOT NULL DEFAULT 0      -- of pilots whose rows are gone
);
CREATE TABLE IF NOT EXISTS submission (
    tag TEXT PRIMARY KEY,
    grid TEXT NOT NULL,
    submitted_at REAL NOT NULL,
    token INTEGER NOT NULL,                 -- its number at the server
    is_revoked INTEGER NOT NULL DEFAULT 0,
    why TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS pilot (
    tag TEXT NOT NULL REFERENCES submission,
    "index" INTEGER NOT NULL,
    grid TEXT NOT NULL,
    state TEXT NOT NULL,
    cpus INTEGER NOT NULL,
    native_id TEXT NOT NULL,
    submitted_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    reason TEXT NOT NULL,
    owners TEXT NOT NULL,                   -- JSON
    node TEXT NOT NULL,
    exit_code INTEGER,
    walltime_seconds INTEGER NOT NULL,
    waiting_at REAL,
    has_joined INTEGER NOT NULL,
    holding INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    error TEXT NOT NULL,
    stderr TEXT NOT NULL,
    cancelled TEXT NOT NULL,
    surplus_cycles INTEGER NOT NULL,
    is_settled INTEGER NOT NULL,
    PRIMARY KEY (tag, "index")
) WITHOUT ROWID;
-- What the last look concluded: why no more is submitted to a grid, why a BOT is not served.
CREATE TABLE IF NOT EXISTS note (
    kind TEXT NOT NULL,                     -- grid or bot
    subject TEXT NOT NULL,
    text TEXT NOT NULL,
    looked_at REAL NOT NULL,
    PRIMARY KEY (kind, subject)
) WITHOUT ROWID;
-- What lives, at each look; and what ended lately.
CREATE INDEX IF NOT EXISTS pilot_grid ON pilot (grid, ended_at);

-- name: migration 2
ALTER TABLE pilot ADD COLUMN has_held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pilot ADD COLUMN running_at REAL;

-- name: migration 3
-- Tags are random.
ALTER TABLE overlay DROP COLUMN sequence;

-- name: migration 4
ALTER TABLE pilot ADD COLUMN core_seconds REAL NOT NULL DEFAULT 0;

-- name: migration 5
ALTER TABLE pilot ADD COLUMN is_logged INTEGER NOT NULL DEFAULT 0;

-- name: migration 6
-- The number of the last of the server's orders that was followed.
ALTER TABLE overlay ADD COLUMN heard INTEGER NOT NULL DEFAULT 0;

-- name: migration 7
ALTER TABLE pilot ADD COLUMN price REAL NOT NULL DEFAULT 0;
-- Money, of pilots whose rows are gone, by the day on which they were submitted.
CREATE TABLE spent (
    grid TEXT NOT NULL,
    day INTEGER NOT NULL,                   -- days since 1970, UTC
    money REAL NOT NULL,
    PRIMARY KEY (grid, day)
) WITHOUT ROWID;

-- name: migration 8
ALTER TABLE pilot ADD COLUMN overran_at REAL;

-- name: instance
SELECT instance FROM overlay

-- name: begin
INSERT INTO overlay (instance) VALUES (:instance)

-- name: heard
SELECT heard FROM overlay

-- name: hear
UPDATE overlay SET heard = max(heard, :number)

-- name: add_submission
INSERT INTO submission (tag, grid, submitted_at, token, why)
VALUES (:tag, :grid, :submitted_at, :token, :why)

-- name: pilots
-- Live pilots, those that ended lately, and those of whose end the server has not heard.
SELECT * FROM pilot
 WHERE grid = :grid AND (ended_at IS NULL OR ended_at > :since OR NOT is_settled)
 ORDER BY submitted_at, tag, "index"

-- name: grids_of
SELECT tag, grid FROM submission WHERE tag IN (SELECT value FROM json_each(:tags))

-- name: grids
SELECT DISTINCT grid FROM pilot WHERE ended_at IS NULL OR NOT is_settled

-- name: grid
SELECT drained, resumed_at FROM grid WHERE name = :name

-- name: used_hours
SELECT coalesce((SELECT used_hours FROM grid WHERE name = :grid), 0)
     + coalesce((SELECT sum(max(0, ended_at - started_at)) / 3600 FROM pilot
                  WHERE grid = :grid AND ended_at IS NOT NULL AND started_at IS NOT NULL), 0)

-- name: spent
-- Money, of pilots that have ended and were submitted since.
SELECT coalesce((SELECT sum(money) FROM spent
                  WHERE grid = :grid AND day * 86400 >= :since), 0)
     + coalesce((SELECT sum(cost(ended_at - started_at, price)) FROM pilot
                  WHERE grid = :grid AND price > 0 AND submitted_at >= :since
                    AND ended_at IS NOT NULL AND started_at IS NOT NULL), 0)

-- name: totals
-- Over what is kept: what pilots did, and the hours in which their cores ran nothing.
SELECT coalesce(sum(jobs), 0) AS jobs, coalesce(sum(failures), 0) AS failures,
       coalesce(sum(max(0, ended_at - started_at)) / 3600, 0) AS hours,
       coalesce(sum(max(0, ended_at - started_at - core_seconds / cpus)) / 3600, 0)
           AS wasted_hours
  FROM pilot WHERE grid = :grid

-- name: no_notes
DELETE FROM note

-- name: add_note
INSERT INTO note VALUES (:kind, :subject, :text, :looked_at)

-- name: notes
SELECT subject, text, looked_at FROM note WHERE kind = :kind ORDER BY subject

-- name: drain
INSERT INTO grid (name, drained) VALUES (:name, :drained)
    ON CONFLICT (name) DO UPDATE SET drained = :drained

-- name: resume
INSERT INTO grid (name, resumed_at) VALUES (:name, :now)
    ON CONFLICT (name) DO UPDATE SET drained = '', resumed_at = :now

-- name: idle_tokens
-- Keys whose pilots have all ended.
SELECT tag, token FROM submission s
 WHERE NOT is_revoked
   AND NOT EXISTS (SELECT 1 FROM pilot p WHERE p.tag = s.tag AND p.ended_at IS NULL)

-- name: tokens_of_grid
SELECT tag, token FROM submission WHERE NOT is_revoked AND grid = :grid

-- name: revoked
UPDATE submission SET is_revoked = 1 WHERE tag = :tag

-- name: keep_hours
-- Before the rows of a submission that ended long ago go, with the next two.
INSERT INTO grid (name, used_hours)
SELECT p.grid, sum(max(0, coalesce(p.ended_at - p.started_at, 0))) / 3600
  FROM pilot p JOIN submission s USING (tag)
 WHERE s.is_revoked
   AND NOT EXISTS (SELECT 1 FROM pilot o WHERE o.tag = s.tag
                    AND (o.ended_at IS NULL OR o.ended_at > :before OR NOT o.is_settled))
 GROUP BY p.grid
    ON CONFLICT (name) DO UPDATE SET used_hours = used_hours + excluded.used_hours

-- name: keep_money
INSERT INTO spent (grid, day, money)
SELECT p.grid, CAST(p.submitted_at / 86400 AS INTEGER), sum(cost(p.ended_at - p.started_at, p.price))
  FROM pilot p JOIN submission s USING (tag)
 WHERE s.is_revoked AND p.price > 0 AND p.started_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM pilot o WHERE o.tag = s.tag
                    AND (o.ended_at IS NULL OR o.ended_at > :before OR NOT o.is_settled))
 GROUP BY 1, 2
    ON CONFLICT (grid, day) DO UPDATE SET money = money + excluded.money

-- name: forget_pilots
DELETE FROM pilot WHERE tag IN (
    SELECT s.tag FROM submission s
     WHERE s.is_revoked
       AND NOT EXISTS (SELECT 1 FROM pilot o WHERE o.tag = s.tag
                        AND (o.ended_at IS NULL OR o.ended_at > :before OR NOT o.is_settled)))

-- name: forget_submissions
DELETE FROM submission
 WHERE is_revoked AND NOT EXISTS (SELECT 1 FROM pilot p WHERE p.tag = submission.tag)
