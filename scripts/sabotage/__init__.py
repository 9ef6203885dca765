"""Liars among honest hosts: wrong results that are accepted, and what keeping them out costs."""
