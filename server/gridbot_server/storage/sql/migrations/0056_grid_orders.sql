-- Operators drain and resume grids at the server; the grid's constructor asks for that, and does it.
CREATE SEQUENCE grid_order_number;
CREATE TABLE grid_order (
    constructor text NOT NULL,          -- what the tags of its submissions begin with
    grid        text NOT NULL,
    number      bigint NOT NULL UNIQUE,
    drained     text NOT NULL CHECK (drained IN ('', 'finish', 'now')),
    ordered_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (constructor, grid)     -- the last order counts
);
-- Of all grids of a constructor, also those that get no pilots: {"ice": "", "fire": "now"}.
ALTER TABLE told_grids
    ADD COLUMN drained jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN heard bigint NOT NULL DEFAULT 0;     -- the number of the last order that it heard
