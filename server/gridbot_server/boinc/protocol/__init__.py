"""BOINC's texts: reading its requests and writing its replies; no database."""
