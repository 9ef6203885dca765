#!/bin/sh
# Runs one command of a GridBot BOT under a stock BOINC client.
#
# What it may run is written below, between the two lines of dashes, and signed with this
# file.  The client's command line brings only values for that command: words that are
# decoded, checked against their types and passed on as arguments.  Nothing is evaluated.
#
# The command runs in work/, below the slot, as a native client would run it: its input
# files there, a clean environment, stdout and stderr in files.  At its end this program
#   - writes the ends of both logs and how it ended to stderr, for the server,
#   - leaves the outputs in gb_out: one file as it is, several of them as one bundle,
#   - leaves boinc_finish_called, so that the client takes the end for one.
#
# Suspend, resume, quit and abort arrive in boinc_mmap_file, where the client writes them
# for programs that use its library.  A watch in the background looks there every two
# seconds and stops, continues or ends the command.  A command that was ended, because of
# quit or because the client or this program died, starts again from scratch in a clean
# work/.  The same watch enforces the time limit, for which suspended time does not count, and
# where there is a /proc the memory limit.  It finds the job's processes by a variable in their
# environment, also those that left their group, and ends them with the job.  A process that
# empties its environment escapes this: a stock client has no walls.

set -uf
export LC_ALL=C
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
unset CDPATH
newline='
'
slot=$(pwd -P)
stopped=gb_stopped_$$   # why the watch ended the command; a later run has its own
tick=2                  # seconds between two looks of the watch, and from TERM to KILL
log_bytes=24000         # of each log; the client keeps 63 KB of stderr
most_outputs=256
job= group= session= paused= inputs= devices=
ended=none              # the command's exit code, or minus the signal that killed it

# ----------------------------------------------------------------------------------------
@rendered@
# ----------------------------------------------------------------------------------------

# --- how it ends --------------------------------------------------------------------------

# The server reads the last line.
report() { # reason
    user=none system=none
    command times > gb_times && { read -r user system; read -r user system; } < gb_times
    for log in stdout stderr; do
        printf '\n[gridbot %s]\n' "$log"
        # The client takes what it reads for a C string.
        [ ! -f "gb_$log" ] || tail -c "$log_bytes" "gb_$log" | tr '\000' '?'
    done >&2
    printf '\n[gridbot end reason=%s exit=%s cpu=%s+%s]\n' "$1" "$ended" "$user" "$system" >&2
}

finish() { # exit code; the file goes last: a process that lives on after it is aborted
    printf '%s\n' "$1" > boinc_finish_called || no_room 'cannot write boinc_finish_called'
    exit "$1"
}

fail() { # reason, text, exit code
    cd "$slot" || exit 0
    printf '%s\n' "$2" >> gb_stderr
    report "$1"
    finish "${3:-195}"
}

# Not the job's fault: the client tries again in an hour, and gives up after 100 times.
no_room() { # text
    cd "$slot" || exit 0
    clean
    rm -f gb_reserve gb_probe boinc_finish_called
    printf '3600\n%s\n' "$1" > boinc_temporary_exit
    exit 0
}

# The command may have made anything of its directory, also a link to elsewhere.
clean() {
    [ -h work ] || [ ! -d work ] || chmod -R u+rwx work 2> /dev/null
    rm -rf work gb_job gb_out gb_picked gb_names gb_stdout gb_stderr
}

enter_work() { [ ! -h work ] && cd work 2> /dev/null; }

# --- values from the command line ---------------------------------------------------------

# A word is a colon and the value, in which all but plain characters stand as \0 and three
# octal digits.
decode() { # word; sets value
    value=
    case $1 in :*) value=$(printf '%b.' "${1#:}") ;; esac
    # Without its last dot it was no such word: output stopped early, or never began.
    case $value in
        *.) value=${value%.} ;;
        *) fail bad_arguments "argument '$1' is not encoded as expected" ;;
    esac
}

is_digits() { case $1 in '' | *[!0-9]*) return 1 ;; esac; }

is_int() { is_digits "${1#[-+]}"; }

is_real() {
    set -- "${1#[-+]}"
    case $1 in *[eE]*) is_int "${1#*[eE]}" || return 1 ;; esac
    set -- "${1%%[eE]*}"
    case $1 in *.*) set -- "${1%%.*}${1#*.}" ;; esac
    is_digits "$1"
}

take() { # type, name, word; sets value
    decode "$3"
    case $1 in
        int) is_int "$value" ;;
        real) is_real "$value" ;;
        text) : ;;
    esac || fail bad_arguments "placeholder {$2} takes $1, not '$value'"
}

# --- input files --------------------------------------------------------------------------

# Plain characters, in parts that begin with a letter, a digit, a _ or, but for the first, a dot.
is_safe_name() {
    case $1/ in .* | */./* | */../*) return 1 ;; esac
    case /$1 in */ | */[!A-Za-z0-9_.]* | *[!A-Za-z0-9._+=@%/-]*) return 1 ;; esac
}

place() { # file in the slot, name in work/
    is_safe_name "$2" || fail bad_arguments "input '$2' has no usable name"
    [ ! -e "work/$2" ] || fail bad_arguments "input '$2' is there twice"
    # Moved: when the job starts again, the client copies it anew.
    [ -f "$1" ] || no_room "the client did not copy input $2"
    case $2 in */*) mkdir -p "work/${2%/*}" ;; esac || no_room "cannot make room for $2"
    mv "$1" "work/$2" || no_room "cannot move input $2"
    inputs=$inputs$newline$2
}

place_program() {
    place "$1" "$2"
    chmod u+x "work/$2"
}

place_archive() { # file in the slot, name of a directory in work/
    place "$1" "$2"
    mv "work/$2" gb_archive && mkdir "work/$2" || no_room "cannot make room for $2"
    tar -xzf gb_archive -C "work/$2" || no_room "cannot unpack $2"
    rm gb_archive
}

place_own() { # names, separated by commas
    own=$1 number=0
    while [ -n "$own" ]; do
        place "gb_own_$number" "${own%%,*}"
        number=$((number + 1))
        case $own in *,*) own=${own#*,} ;; *) own= ;; esac
    done
}

# --- the watch ----------------------------------------------------------------------------

signal_job() {
    is_digits "$job" && [ "$job" -gt 1 ] && kill -s "$1" -- "$group$job" 2> /dev/null
}

# Ids of the job's processes.
find_marked() {
    set +f
    marked=$(grep -lszxF "GRIDBOT_SLOT=$slot" /proc/[0-9]*/environ 2> /dev/null)
    set -f
    marked=$(printf '%s' "$marked" | tr -dc '0-9\n')
}

# One round is not enough: a process may fork while the others are being killed.
end_strays() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        find_marked
        [ -n "$marked" ] || return 0
        kill -s KILL -- $marked 2> /dev/null
    done
}

# Resident sizes count shared pages once for each process.  So a sum beyond the limit is
# taken again by proportional ones, which a kernel before 4.14 does not tell.
exceeds_memory() {
    find_marked
    [ -n "$marked" ] || return 1
    sum_memory VmRSS status || return 1
    sum_memory Pss smaps_rollup || [ "$kilobytes" -eq 0 ]
}

sum_memory() { # field, file; whether the sum is beyond the limit
    kilobytes=$(for process in $marked; do
        sed -n "s/^$1:[^0-9]*\([0-9]*\) kB.*/\1/p" "/proc/$process/$2" 2> /dev/null
    done | { sum=0; while read -r one; do sum=$((sum + one)); done; printf '%s' "$sum"; })
    [ "$kilobytes" -gt "$limit_kilobytes" ]
}

end_job() { # why
    printf '%s\n' "$1" > "$stopped"
    signal_job TERM
    signal_job CONT
    sleep "$tick"
    signal_job KILL
    end_strays
    exit 0
}

# The first kilobyte is what the client tells us: a flag, then a text; we clear the flag.
listen() {
    [ -f boinc_mmap_file ] || return 0
    told=$(dd if=boinc_mmap_file bs=1024 count=1 2> /dev/null | tr '\000\001' '\n!' | head -n 1)
    case $told in '!'*) ;; *) return 0 ;; esac
    printf '\000' | dd of=boinc_mmap_file bs=1 count=1 conv=notrunc 2> /dev/null
    case $told in
        *'<quit/>'* | *'<abort/>'*) end_job told ;;
        *'<suspend/>'*) signal_job STOP && paused=yes ;;
        *'<resume/>'*) signal_job CONT && paused= ;;
    esac
}

watch() {
    ticks=0 has_client=no owner=
    if kill -0 "$PPID" 2> /dev/null; then has_client=yes; fi
    while sleep "$tick"; do
        [ -n "$job" ] || [ ! -s gb_job ] || read -r job < gb_job
        kill -0 "$$" 2> /dev/null || end_job orphaned
        [ "$has_client" = no ] || kill -0 "$PPID" 2> /dev/null || end_job orphaned
        read -r owner < gb_owner
        [ "$owner" = "$$" ] || end_job superseded
        listen
        [ -n "$paused" ] || ticks=$((ticks + tick))
        [ "$ticks" -le "$limit_seconds" ] || end_job time_limit
        ! exceeds_memory || end_job memory_limit
    done
}

# A client that died and came back starts us while our predecessor may still be there: its
# watch sees that the slot has another owner or that nobody waits for it, and ends the
# command within two ticks.
own_slot() {
    before=
    [ ! -f gb_owner ] || read -r before < gb_owner
    printf '%s\n' "$$" > gb_owner || no_room 'cannot write to the slot'
    [ -n "$before" ] && [ -f gb_job ] || return 0
    sleep $((3 * tick))
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 "$before" 2> /dev/null || return 0
        sleep 1
    done
}

# --- the command --------------------------------------------------------------------------

is_program() { # looked up as exec does; in work/
    case $1 in */*) [ -f "$1" ] && [ -x "$1" ]; return ;; esac
    rest=$PATH:
    while [ -n "$rest" ]; do
        ! [ -f "${rest%%:*}/$1" ] || ! [ -x "${rest%%:*}/$1" ] || return 0
        rest=${rest#*:}
    done
    return 1
}

# In the foreground: what runs in the background has to ignore interrupts.
run() { # the command
    enter_work || no_room 'cannot enter work'
    case $1 in
        */*) ;;
        *) [ ! -f "$1" ] || { first=./$1; shift; set -- "$first" "$@"; } ;;
    esac
    is_program "$1" || fail not_executable "cannot execute '$1'"
    cd ..
    watch > /dev/null 2>&1 &
    watcher=$!
    (
        cd work || exit
        ulimit -c 0
        ulimit -f "$limit_blocks" 2> /dev/null
        exec env -i PATH="$PATH" ${LANG:+"LANG=$LANG"} ${TZ:+"TZ=$TZ"} \
            HOME="$slot/work" TMPDIR="$slot/work/tmp" \
            GRIDBOT_BOT="$bot" GRIDBOT_SEQ="$seq" GRIDBOT_REPLICA="$replica" \
            GRIDBOT_SLOT="$slot" \
            ${devices:+"GRIDBOT_GPUS=$devices"} ${devices:+"CUDA_VISIBLE_DEVICES=$devices"} \
            ${devices:+"HIP_VISIBLE_DEVICES=$devices"} \
            $session sh -c 'echo "$$" > ../gb_job; exec "$@"' sh "$@" \
            < /dev/null > ../gb_stdout 2> ../gb_stderr
    )
    status=$?
    kill "$watcher" 2> /dev/null
    wait "$watcher" 2> /dev/null
    # What it left running goes too.
    [ ! -s gb_job ] || read -r job < gb_job
    [ -z "$group" ] || signal_job KILL
    end_strays
}

has_room() {
    dd if=/dev/zero of=gb_probe bs=1024 count=256 2> /dev/null && rm -f gb_probe
}

judge() { # exit status of the command; a shell tells signals by 128 and more
    ended=$1
    [ "$1" -le 128 ] || [ "$1" -gt 192 ] || ended=-$(($1 - 128))
    why=
    [ ! -f "$stopped" ] || read -r why < "$stopped"
    case $why in
        '') ;;
        time_limit) fail time_limit "took longer than $limit_seconds s" 197 ;;
        memory_limit) fail memory_limit "used more than $limit_kilobytes KB of memory" 198 ;;
        *) exit 0 ;;
    esac
    [ "$1" -ne 0 ] || return 0
    has_room || no_room 'the disk is full'
    # These also come when the machine goes down; then the next one is ours.
    case $1 in 129 | 130 | 131 | 137 | 143) sleep "$tick" ;; esac
    case $ended in
        -25) fail disk_limit 'a file grew beyond the limit' 196 ;;
        -*) report signal ;;
        *) report exit_nonzero ;;
    esac
    finish "$1"
}

# --- outputs, in work/ --------------------------------------------------------------------

# A regular file that no link leads to.
is_own_file() {
    part=$1
    while [ ! -h "$part" ]; do
        case $part in */*) part=${part%/*} ;; *) [ -f "$1" ]; return ;; esac
    done
    return 1
}

pick() { printf '%s\n' "$1" >> ../gb_picked || no_room 'cannot list the outputs'; }

pick_file() { # name
    is_own_file "$1" || fail missing_output "output '$1' is not there as a file"
    pick "$1"
}

pick_matches() { # names; a pattern without a match stays as it is, and is no file
    for name; do
        is_own_file "$name" || continue
        case $inputs$newline in *"$newline$name$newline"*) continue ;; esac
        is_safe_name "$name" || fail bad_output_name "'$name' is no usable file name"
        pick "$name"
    done
}

path_of() { case $1 in stdout | stderr) path=../gb_$1 ;; *) path=$1 ;; esac; }

check_outputs() {
    count=0 total=0
    while read -r name; do
        path_of "$name"
        count=$((count + 1)) total=$((total + $(wc -c < "$path")))
    done < ../gb_names
    [ "$count" -le "$most_outputs" ] ||
        fail too_many_outputs "$count outputs, at most $most_outputs"
    [ "$total" -le "$limit_output" ] ||
        fail output_too_big "outputs of $total bytes, at most $limit_output"
}

bundle() {
    printf 'gridbot-outputs 1\n' > ../gb_out || return
    while read -r name; do
        path_of "$name"
        printf '%s %s\n' "$(($(wc -c < "$path")))" "$name" >> ../gb_out || return
        cat "$path" >> ../gb_out || return
    done < ../gb_names
}

collect() {
    enter_work || fail missing_output 'the working directory is not there any more'
    printf '' > ../gb_picked || no_room 'cannot list the outputs'
    pick_outputs
    sort -u ../gb_picked > ../gb_names || no_room 'cannot list the outputs'
    check_outputs
    case $single in
        '') [ "$count" -eq 0 ] || bundle ;;
        stdout | stderr) cat "../gb_$single" > ../gb_out ;;
        *) mv "$single" ../gb_out ;;
    esac || no_room 'cannot gather the outputs'
    cd ..
}

# --- the way of a job ---------------------------------------------------------------------

# Read whole before it begins: a shell would go on reading this file while the job runs.
main() {
    own_slot
    clean
    set +f
    rm -f gb_stopped_* boinc_temporary_exit boinc_finish_called
    set -f
    mkdir work work/tmp || no_room 'cannot make work'
    dd if=/dev/zero of=gb_reserve bs=4096 count=2 2> /dev/null || no_room 'the disk is full'

    [ "$#" -ge "$((values + 5))" ] || fail bad_arguments 'the command line is too short'
    take int bot "$1"; bot=$value
    take int seq "$2"; seq=$value
    take int replica "$3"; replica=$value
    decode "$4"; own_names=$value
    shift 4
    take_values "$@"
    shift "$values"
    [ "$1" = . ] || fail bad_arguments 'the command line has another number of values'
    shift
    while [ "$#" -ge 2 ] && [ "$1" = --device ]; do
        is_digits "$2" || fail bad_arguments "device '$2' is no number"
        devices=${devices:+$devices,}$2
        shift 2
    done

    place_signed
    place_own "$own_names"
    if command -v setsid > /dev/null 2>&1; then session=setsid group=-; fi
    run_command
    judge "$status"
    collect
    report ''
    finish 0
}

main "$@"
