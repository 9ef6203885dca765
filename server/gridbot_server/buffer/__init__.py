"""The shared scheduling buffer: jobs ready to be sent, in one mapped file (paper 6.1-6.2)."""
