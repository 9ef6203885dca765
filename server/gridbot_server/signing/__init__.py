"""Keys, signatures, and the bundle that carries BOTs to the machine with the keys."""
