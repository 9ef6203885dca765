-- A browser that was let in: its cookie stands for a key, until then or until the key is revoked.
CREATE TABLE console_session (
    hash       bytea PRIMARY KEY,                  -- SHA-256 of the cookie
    token      int NOT NULL REFERENCES token,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);

-- A link that lets a browser in, once.
CREATE TABLE console_link (
    hash       bytea PRIMARY KEY,                  -- SHA-256 of the link's code
    token      int NOT NULL REFERENCES token,
    expires_at timestamptz NOT NULL
);

-- The policies that a BOT has had, from its first change on.
CREATE TABLE policy_version (
    bot        bigint NOT NULL,
    n          int NOT NULL,
    policy     text NOT NULL,
    changed_by int NOT NULL REFERENCES owner,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, n)
);

-- Since when a BOT is in its tail phase, for its curves.
ALTER TABLE bot ADD COLUMN tail_since timestamptz;

-- Failures are few, and looked for among all replicas that have ended.
CREATE INDEX ended_errors ON ended (bot) WHERE how = 'error';
