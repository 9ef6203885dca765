"""The work-dispatch server: feeder, scheduling buffer, dispatch, cycles, validation, files, HTTP."""
