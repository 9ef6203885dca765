"""The client as a job of a grid: node checks, leaving before the walltime, hiding its key."""
