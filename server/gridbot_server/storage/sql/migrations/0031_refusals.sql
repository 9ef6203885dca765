-- Why grids refuse BOTs, as each constructor said it last: {"7": {"ice": "its GridPolicy excludes…"}}.
CREATE TABLE refusals (
    constructor text PRIMARY KEY,   -- what the tags of its submissions begin with
    bots        jsonb NOT NULL,
    said_at     timestamptz NOT NULL DEFAULT now()
);
