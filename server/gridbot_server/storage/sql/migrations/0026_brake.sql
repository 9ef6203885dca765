-- BOTs that are held: they run, and nothing of them is sent until they are resumed.
ALTER TABLE bot
    ADD COLUMN held         text,                -- why; null: it is not held
    ADD COLUMN max_failures text,                -- failed jobs at most, N or P%; null: any number
    ADD COLUMN watched      boolean NOT NULL DEFAULT false;  -- no replica has succeeded since it began
ALTER TABLE bot ALTER COLUMN watched SET DEFAULT true;

-- Of watched BOTs whose replicas have all failed alike so far: how, how often, for whom.
CREATE TABLE brake (
    bot       bigint PRIMARY KEY REFERENCES bot ON DELETE CASCADE,
    reason    text NOT NULL,
    exit_code int,
    line      text NOT NULL,
    replicas  bigint NOT NULL,
    voters    bigint[] NOT NULL              -- hosts, or owners where strangers answer; two at most
);

CREATE FUNCTION bot_state(state text, held text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN state = 'running' AND held IS NOT NULL THEN 'held' ELSE state END
$$;

-- The last line of what a program said, with its numbers masked: failures of one cause are alike.
CREATE FUNCTION last_line(said text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT right(regexp_replace(
           (regexp_match(rtrim(right(coalesce(said, ''), 4000), E' \t\r\n'), '[^\r\n]*$'))[1],
           '0x[0-9a-fA-F]+|[0-9]+', '#', 'g'), 300)
$$;

CREATE OR REPLACE FUNCTION announce_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(
        'gridbot_news', NEW.id || ' ' || (bot_state(NEW.state, NEW.held) <> 'running')::text);
    RETURN NULL;
END $$;

DROP TRIGGER news ON bot;
CREATE TRIGGER news AFTER UPDATE OF outcomes, events, state, held ON bot
FOR EACH ROW WHEN ((OLD.outcomes, OLD.events, OLD.state, OLD.held)
                   IS DISTINCT FROM (NEW.outcomes, NEW.events, NEW.state, NEW.held))
EXECUTE FUNCTION announce_news();
