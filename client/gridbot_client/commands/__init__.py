"""The commands of `gridbot client`, a module for each group of them."""
