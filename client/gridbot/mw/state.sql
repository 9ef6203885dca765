-- name: schema
-- A task without a job is listed; one that has ended is gone.
CREATE TABLE task (
    id INTEGER PRIMARY KEY,  -- in the order in which they were added
    key REAL NOT NULL,
    content TEXT NOT NULL,
    job INTEGER UNIQUE,      -- number in the BOT
    item TEXT,               -- what is appended as this job
    unwanted TEXT            -- NULL, 'due': the job is to be cancelled, 'asked': it was, if unsent
);
CREATE INDEX listed ON task (key, id) WHERE job IS NULL;
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 1;

-- name: add
INSERT INTO task (key, content) VALUES (:key, :content);

-- name: best
SELECT id, content FROM task WHERE job IS NULL ORDER BY key, id LIMIT :limit;

-- name: least_key
SELECT key FROM task WHERE job IS NULL ORDER BY key LIMIT 1;

-- name: sent
UPDATE task SET job = :job, item = :item WHERE id = :id;

-- name: jobs_from
SELECT item FROM task WHERE job >= :job ORDER BY job;

-- name: of_job
SELECT id, content FROM task WHERE job = :job;

-- name: listed_again
UPDATE task SET job = NULL, item = NULL, unwanted = NULL WHERE id = :id;

-- name: remove
DELETE FROM task WHERE id = :id;

-- name: remove_worse
DELETE FROM task WHERE job IS NULL AND key > :key;

-- name: unwant_worse
UPDATE task SET unwanted = 'due' WHERE job IS NOT NULL AND key > :key AND unwanted IS NULL;

-- name: unwanted
SELECT job FROM task WHERE unwanted = 'due';

-- name: asked
UPDATE task SET unwanted = 'asked' WHERE unwanted = 'due';

-- name: counts
SELECT count(*) - count(job) AS listed, count(job) AS sent FROM task;

-- name: facts
SELECT name, value FROM fact;

-- name: set_fact
INSERT INTO fact VALUES (:name, :value) ON CONFLICT DO UPDATE SET value = excluded.value;
