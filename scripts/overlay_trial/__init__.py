"""The overlay on a real Slurm cluster: a BOT, and what goes wrong meanwhile."""
