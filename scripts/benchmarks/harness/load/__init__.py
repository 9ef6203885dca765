"""The load on a server, in processes of its own: hosts in closed and open loops, bare clients."""
