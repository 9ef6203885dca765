-- Accounts at an OpenID provider that log in like a key.
CREATE TABLE linked_login (
    issuer    text NOT NULL,
    subject   text NOT NULL,             -- who it is there; it never becomes somebody else's
    token     int NOT NULL REFERENCES token,
    linked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX linked_login_token ON linked_login (token);
