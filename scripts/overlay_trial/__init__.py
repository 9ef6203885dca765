"""The overlay on real batch systems: a BOT, and what goes wrong meanwhile."""
