"""What measurements share: servers and their load, what is read meanwhile, how it is told."""
