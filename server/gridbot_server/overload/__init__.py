"""Keeps a server responsive: admission control, rate limits, transfer slots, deadlines."""
