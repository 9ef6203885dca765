"""The dispatch core: the shared scheduling buffer and what happens at a host's request."""
