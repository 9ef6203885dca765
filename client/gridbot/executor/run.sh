# Runs a program under the interpreter of the host's client, or under the one on its search path.
if test -x "$GRIDBOT_PYTHON"; then exec "$GRIDBOT_PYTHON" "$@"; fi
exec python3 "$@"
