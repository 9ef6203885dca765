-- The overlay hears at once of BOTs that begin, grow, are held or end: news of BOT 0, which is none.
CREATE FUNCTION announce_demand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gridbot_news', '0 false');
    RETURN NULL;
END $$;

CREATE TRIGGER demand_begins AFTER INSERT ON bot
FOR EACH ROW WHEN (NEW.state = 'running') EXECUTE FUNCTION announce_demand();

CREATE TRIGGER demand_changes
AFTER UPDATE OF state, held, size, suspended, waits_for_signature, policy_version ON bot
FOR EACH ROW WHEN (
    (OLD.state, OLD.held, OLD.size, OLD.suspended, OLD.waits_for_signature, OLD.policy_version)
    IS DISTINCT FROM
    (NEW.state, NEW.held, NEW.size, NEW.suspended, NEW.waits_for_signature, NEW.policy_version))
EXECUTE FUNCTION announce_demand();
