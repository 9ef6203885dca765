"""Carries out a script that was read: its state, values of expressions, commands, and its log."""
