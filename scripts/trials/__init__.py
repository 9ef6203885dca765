"""What people do in their first days, typed in a real terminal: parts of `scripts/trial`."""
