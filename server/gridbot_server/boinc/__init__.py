"""The adapter to stock BOINC clients: their protocol, applications and sessions."""
