-- Jobs below it may stand in the buffers of several machines, because their gang gathered: `fed`
-- does not fall below it any more.
ALTER TABLE bot ADD COLUMN gathered bigint NOT NULL DEFAULT 0;
