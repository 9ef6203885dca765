-- Web processes hear at once of new results, and of BOTs that have ended.

CREATE FUNCTION announce_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gridbot_news', NEW.id || ' ' || (NEW.state <> 'running')::text);
    RETURN NULL;
END $$;

CREATE TRIGGER news AFTER UPDATE OF outcomes, events, state ON bot
FOR EACH ROW WHEN ((OLD.outcomes, OLD.events, OLD.state) IS DISTINCT FROM (NEW.outcomes, NEW.events, NEW.state))
EXECUTE FUNCTION announce_news();
