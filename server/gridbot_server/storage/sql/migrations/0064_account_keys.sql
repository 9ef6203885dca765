-- A key that attaches machines and changes what its owner may change without scope `user`: it is told
-- to those who know the account's password and are no client, account managers for example.
ALTER TABLE token DROP CONSTRAINT token_scope_check;
ALTER TABLE token ADD CONSTRAINT token_scope_check
    CHECK (scope IN ('operator', 'user', 'account', 'join', 'pilot', 'metrics'));

-- A weak key is told to the machines of an account; it is revoked with the key that it is made of.
ALTER TABLE token ADD COLUMN made_of int REFERENCES token;
CREATE INDEX token_made_of ON token (made_of) WHERE made_of IS NOT NULL;

-- The venue of machines that attach later, and which share of a stock BOINC client's time this
-- project has beside others, by venue: {"default": 100, "work": 50}.
ALTER TABLE owner
    ADD COLUMN venue           text NOT NULL DEFAULT '',
    ADD COLUMN resource_shares jsonb NOT NULL DEFAULT '{}';
