-- What the run of a workflow has told last; it goes with the group of the run's BOTs.
CREATE TABLE workflow (
    bot_group   bigint PRIMARY KEY REFERENCES bot_group ON DELETE CASCADE,
    kind        text NOT NULL,
    name        text NOT NULL,
    state       text NOT NULL,
    seconds     double precision NOT NULL,  -- since the run began
    eta_seconds double precision,
    waiting     bigint NOT NULL,            -- nodes
    running     bigint NOT NULL,
    done        bigint NOT NULL,
    failed      bigint NOT NULL,
    futile      bigint NOT NULL,
    graph       jsonb NOT NULL,             -- layers, nodes and edges: bounded by the route
    told_at     timestamptz NOT NULL DEFAULT now()
);
