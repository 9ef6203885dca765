-- Ads of grids, as each constructor told them last: {"ice": {"Kind": "slurm", "Cpus": 4, …}}.
CREATE TABLE told_grids (
    constructor text PRIMARY KEY,   -- what the tags of its submissions begin with
    ads         jsonb NOT NULL,
    told_at     timestamptz NOT NULL DEFAULT now(),
    good_until  timestamptz NOT NULL
);
