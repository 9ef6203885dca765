"""Keeps a server alive: starts and restarts PostgreSQL, web processes, feeder and cycles."""
