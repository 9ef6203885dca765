"""Further servers that this machine works for while its own, home, leaves CPUs idle.

Each friend's server sees an ordinary client, with an identity, keys and folder of its own: a guest.
Guests are processes below the home client, so nothing of one server mixes with that of another.
The idea is flocking between Condor pools (Epema et al. 1996), by pull.
"""
