-- BOTs that take further jobs while they run, until they are closed.
ALTER TABLE bot ADD COLUMN growing boolean NOT NULL DEFAULT false;
ALTER TABLE bot ADD COLUMN grown_at timestamptz;  -- last appended to; null: it was never growing
ALTER TABLE bot ADD COLUMN closed text;           -- by whom or why, for people

-- The key of the request that appended its jobs: to repeat that appends nothing.
ALTER TABLE job_part ADD COLUMN append_key text;

-- Feeders hear of jobs that are appended as of a BOT that begins to run.
DROP TRIGGER announced ON bot;
CREATE TRIGGER announced AFTER INSERT OR UPDATE OF state, policy_version, round, size ON bot
FOR EACH ROW WHEN (NEW.state = 'running') EXECUTE FUNCTION announce_bot();
