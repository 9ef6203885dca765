-- The trace that a BOT was submitted in, if any: 16 bytes of its id, 8 of the span of the
-- submission; and how many of its jobs, the first ones, have spans.
ALTER TABLE bot ADD COLUMN trace bytea CHECK (length(trace) = 24),
                ADD COLUMN traced_jobs int NOT NULL DEFAULT 0;
