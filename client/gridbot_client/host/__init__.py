"""This machine: the attributes of its host ad, and its owner's policy."""
