"""Checks of a policy text before it is sent: errors, likely mistakes, impossible conditions."""
