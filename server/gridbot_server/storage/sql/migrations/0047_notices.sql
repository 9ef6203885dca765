-- Addresses that are told when a BOT of their owner ends or is held, and operators' when the server
-- needs attention.
CREATE TABLE notice_address (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner      int NOT NULL REFERENCES owner,
    url        text NOT NULL,          -- https://…, http://… or mailto:…
    secret     text NOT NULL,          -- signs what is sent there
    created_at timestamptz NOT NULL DEFAULT now(),
    told_at    timestamptz,            -- when something last arrived there
    error      text,                   -- why the last attempt failed; null: it did not
    UNIQUE (owner, url)
);

-- What is to be told to an address, until it has arrived.
CREATE TABLE notice (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    address bigint NOT NULL REFERENCES notice_address ON DELETE CASCADE,
    what    json NOT NULL,
    at      timestamptz NOT NULL DEFAULT now(),
    tries   int NOT NULL DEFAULT 0,
    due_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX notice_due ON notice (due_at);
CREATE INDEX notice_of_address ON notice (address);

-- In the transaction that ends or holds the BOT: none is lost, and none is told that did not happen.
CREATE FUNCTION note_end_or_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO notice (address, what)
    SELECT a.id, json_build_object(
               'event', CASE WHEN NEW.state IN ('done', 'cancelled') THEN 'bot_' || NEW.state
                             ELSE 'bot_held' END,
               'bot', NEW.id, 'name', NEW.name, 'why', NEW.held,
               'jobs_total', NEW.size, 'jobs_done', NEW.done, 'jobs_failed', NEW.failed)
      FROM notice_address a WHERE a.owner = NEW.owner;
    RETURN NULL;
END $$;

CREATE TRIGGER note_end_or_hold AFTER UPDATE OF state, held ON bot
FOR EACH ROW WHEN (
    NEW.state IN ('done', 'cancelled') AND OLD.state NOT IN ('done', 'cancelled')
    OR NEW.state = 'running' AND NEW.held IS NOT NULL AND OLD.held IS NULL)
EXECUTE FUNCTION note_end_or_hold();
