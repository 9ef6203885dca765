"""The scientist's Python API: sessions, submissions, results."""
