umask 077
@setup@
named=@python@
# Its whole path: a Python that was found without PATH (HTCondor) does not know itself.
python=$(command -v "$named") || {
    echo "gridbot pilot: $(hostname) has no $named: set python or setup of this grid" >&2
    exit 3
}
export GRIDBOT_SCRATCH="@scratch@"
exec "$python" - <<'GRIDBOT_START'
SETTINGS = @settings@
@start@
GRIDBOT_START
