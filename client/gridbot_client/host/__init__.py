"""This machine: the host ad's attributes, and whether its owner lets the client work now."""
