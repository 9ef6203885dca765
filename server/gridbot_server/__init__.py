"""The work-dispatch server: feeder, scheduling buffer, dispatch, cycles, files, HTTP."""
