"""The feeder process: keeps the scheduling buffer full (paper section 6.1)."""
