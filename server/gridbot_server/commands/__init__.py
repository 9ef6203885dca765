"""The verbs of `gridbot server` and `gridbot app`, and the server's main program."""
