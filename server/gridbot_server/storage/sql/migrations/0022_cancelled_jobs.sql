-- Jobs that their owner cancelled while the others go on; they are among those that failed.
ALTER TABLE bot ADD COLUMN jobs_cancelled bigint NOT NULL DEFAULT 0;
