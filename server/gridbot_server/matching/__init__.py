"""Which hosts can run a BOT's jobs, and why the others cannot."""
