"""Why hosts do not get a BOT's jobs: conditions, traces, and what to relax."""
