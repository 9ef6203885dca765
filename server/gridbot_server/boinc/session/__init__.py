"""Serving BOINC's clients: who asks, what they report and get, accounts, uploads."""
