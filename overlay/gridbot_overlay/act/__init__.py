"""The constructor's loop and its effects: asks grids and server, submits, cancels, remembers."""
