-- How many crews had jobs of a BOT when they were counted last; counting them took so long.
ALTER TABLE bot ADD COLUMN crews bigint,
                ADD COLUMN crews_counted_at timestamptz,
                ADD COLUMN crews_seconds float8;
