"""What the overlay sends to a grid: a job script that starts the client on a bare node."""
