-- Who changed what through the API.
CREATE TABLE audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    owner  int NOT NULL,             -- whose key it was
    key    int NOT NULL,
    action text NOT NULL,            -- as the API's description names the operation
    target text NOT NULL,            -- the path
    given  jsonb NOT NULL            -- what was asked for, without secrets and long texts
);

CREATE INDEX audit_owner ON audit (owner, id);
CREATE INDEX audit_at ON audit (at);
