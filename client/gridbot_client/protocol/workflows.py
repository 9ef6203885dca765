"""How much a server is told of a workflow's run: it stays small for graphs of any size."""

MAX_NODES = 200  # that are told one by one
MAX_EDGES = 1000  # between them
MAX_LAYERS = 100  # of which the nodes are counted
MAX_NAME_CHARACTERS = 100
MAX_WHY_CHARACTERS = 200
MAX_SECONDS = 1e10

TELL_SECONDS = 5.0  # between two changes that are told, at least
STILL_SECONDS = 60.0  # after which the same is told again, so that the run is known to go on
SILENT_SECONDS = 3 * STILL_SECONDS  # after which a run is taken for interrupted
