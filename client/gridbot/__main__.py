"""`python -m gridbot` is the command `gridbot`."""

from gridbot.cli import main

main()
