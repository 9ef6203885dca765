-- A key that may read the metrics, and nothing else.
ALTER TABLE token DROP CONSTRAINT token_scope_check;
ALTER TABLE token ADD CONSTRAINT token_scope_check
    CHECK (scope IN ('operator', 'user', 'join', 'pilot', 'metrics'));
