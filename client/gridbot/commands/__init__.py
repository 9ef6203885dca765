"""The verbs of `gridbot` for scientists, and the operator's small ones."""
