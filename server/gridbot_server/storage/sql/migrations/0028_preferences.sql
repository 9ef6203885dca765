-- What an account's owner prefers on all machines of the account, by venue and name:
-- {"default": {"hours": "22:00-07:00"}, "work": {…}}.  Its version is microseconds since 1970, and
-- 0 before the first.
ALTER TABLE owner
    ADD COLUMN preferences         jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN preferences_version bigint NOT NULL DEFAULT 0;
