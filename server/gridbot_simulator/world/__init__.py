"""What is simulated: machines, the clients on them, and the time in which they work."""
