"""What the owner of a machine does with a client beside running it: services, examination."""
