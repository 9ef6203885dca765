-- Feeders of all machines hear at once of a BOT that runs from now on, or runs otherwise.

CREATE FUNCTION announce_bot() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gridbot_jobs', '');
    RETURN NULL;
END $$;

CREATE TRIGGER announced AFTER INSERT OR UPDATE OF state, policy_version, round ON bot
FOR EACH ROW WHEN (NEW.state = 'running') EXECUTE FUNCTION announce_bot();
