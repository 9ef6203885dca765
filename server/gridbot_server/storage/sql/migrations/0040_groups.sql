-- Groups: an owner's label over BOTs, with one stream of results, and a share if it gets one.
CREATE TABLE bot_group (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner      int NOT NULL REFERENCES owner,
    name       text NOT NULL,
    share      double precision CHECK (share > 0),  -- of its owner's; null: its BOTs count as others
    outcomes   bigint NOT NULL DEFAULT 0,           -- last number given in its stream
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (owner, name)
);

ALTER TABLE bot ADD COLUMN bot_group bigint REFERENCES bot_group;
CREATE INDEX bot_of_group ON bot (bot_group, id) WHERE bot_group IS NOT NULL;

-- The stream, in runs of outcomes of one BOT: those after `after` have the numbers from `first` to
-- `last`.  What is numbered stays so, whichever BOTs come into the group later.
CREATE TABLE group_run (
    bot_group bigint NOT NULL REFERENCES bot_group,
    first     bigint NOT NULL,
    last      bigint NOT NULL,
    bot       bigint NOT NULL,
    after     bigint NOT NULL,
    PRIMARY KEY (bot_group, last)
);
CREATE INDEX group_run_of_bot ON group_run (bot, after);

-- Who gives numbers holds the row of the group until it commits, so that they become visible in
-- order.  At the end of the transaction, because then it waits for no row of a BOT any more.
CREATE FUNCTION number_in_group() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    reached bigint;
BEGIN
    UPDATE bot_group SET outcomes = outcomes + NEW.outcomes - OLD.outcomes
     WHERE id = NEW.bot_group RETURNING outcomes INTO reached;
    INSERT INTO group_run (bot_group, first, last, bot, after)
    VALUES (NEW.bot_group, reached - (NEW.outcomes - OLD.outcomes) + 1, reached, NEW.id, OLD.outcomes);
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER number_in_group AFTER UPDATE OF outcomes ON bot
DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.bot_group IS NOT NULL AND NEW.outcomes > OLD.outcomes)
EXECUTE FUNCTION number_in_group();

-- A group is told of by its number below zero, and has never ended: further BOTs may come.
CREATE OR REPLACE FUNCTION announce_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(
        'gridbot_news', NEW.id || ' ' || (bot_state(NEW.state, NEW.held) <> 'running')::text);
    IF NEW.bot_group IS NOT NULL THEN
        PERFORM pg_notify('gridbot_news', -NEW.bot_group || ' false');
    END IF;
    RETURN NULL;
END $$;
