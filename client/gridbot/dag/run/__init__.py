"""Carries out what the engine decides: scripts, jobs at the server and here, files, signals."""
