-- A mailbox is told nothing before its owner has shown the code that was mailed there.
ALTER TABLE notice_address
    ADD COLUMN confirmed_at timestamptz,
    ADD COLUMN code text,               -- that confirms it
    ADD COLUMN code_ends_at timestamptz,
    ADD COLUMN wrong_codes int NOT NULL DEFAULT 0;  -- tries with the present code
ALTER TABLE notice_address ADD COLUMN confirmed boolean NOT NULL
    GENERATED ALWAYS AS (url NOT LIKE 'mailto:%' OR confirmed_at IS NOT NULL) STORED;
DELETE FROM notice USING notice_address a WHERE a.id = notice.address AND NOT a.confirmed;

-- Codes that were mailed within a day. It outlives addresses, which may be removed and added again.
CREATE TABLE mailed_code (
    owner   int NOT NULL REFERENCES owner,
    mailbox text NOT NULL,              -- lower case, without what follows a +
    at      timestamptz NOT NULL DEFAULT now()
);

-- The path of a webhook may be a secret.
UPDATE audit SET given = jsonb_set(given, '{url}', to_jsonb(
           substring(given ->> 'url' from '^[^:]*:(?://[^/?#]*)?') || '…'))
 WHERE action = 'add_address' AND given ? 'url';

ALTER TABLE notice ADD COLUMN dropped bigint NOT NULL DEFAULT 0;  -- older ones in whose place it is
DROP INDEX notice_of_address;
CREATE INDEX notice_of_address ON notice (address, id);

-- Tell an address something. So many notices wait for an address at most: the oldest give way.
CREATE FUNCTION tell_address(told bigint, news json) RETURNS void LANGUAGE sql AS $$
    WITH surplus AS (
        SELECT id FROM notice WHERE address = told ORDER BY id DESC OFFSET 99
    ), free AS (
        SELECT id FROM notice WHERE id IN (SELECT id FROM surplus) FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM notice WHERE id IN (SELECT id FROM free) RETURNING dropped
    )
    INSERT INTO notice (address, what, dropped)
    SELECT told, news, coalesce(sum(dropped + 1), 0) FROM gone;
$$;

-- An address that is just being removed is passed over: who ends a BOT waits for nobody.
CREATE OR REPLACE FUNCTION note_end_or_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tell_address(a.id, json_build_object(
               'event', CASE WHEN NEW.state IN ('done', 'cancelled') THEN 'bot_' || NEW.state
                             ELSE 'bot_held' END,
               'bot', NEW.id, 'name', NEW.name, 'why', NEW.held,
               'jobs_total', NEW.size, 'jobs_done', NEW.done, 'jobs_failed', NEW.failed))
       FROM (SELECT id FROM notice_address WHERE owner = NEW.owner AND confirmed
                FOR KEY SHARE SKIP LOCKED) AS a;
    RETURN NULL;
END $$;
