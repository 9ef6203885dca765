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
# quit or because the client or this program died, starts again in a clean work/: from
# scratch, or with the files of its last checkpoint.  The same watch tells the client how far
# the command says that it is, in the same file.  It enforces the time limit, for which
# suspended time does not count, and where there is a /proc the memory limit.  It finds the
# job's processes by a variable in their environment, also those that left their group, and
# ends them with the job.  A process that empties its environment escapes this: a stock client
# has no walls.

set -uf
export LC_ALL=C
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
unset CDPATH
newline='
'
slot=$(pwd -P)
stopped=gb_stopped_$$   # why the watch ended the command; a later run has its own
tick=2                  # seconds between two looks of the watch, and from TERM to KILL
grace=8                 # seconds from TERM to KILL for a command that saves checkpoints
most_alike=3            # checkpoints in a row with the same files
log_bytes=24000         # of each log; the client keeps 63 KB of stderr
most_outputs=256
# Before the number of a group kill needs them, but busybox takes them for a process.
dashes=--
kill -s 0 -- "$$" 2> /dev/null || dashes=
job= group= session= paused= inputs= devices= restored=
used=0                  # seconds that earlier parts of the run took
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

take_too_long() { fail time_limit "took longer than $limit_seconds s" 197; }

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
    rm -rf work gb_job gb_ticks gb_out gb_picked gb_names gb_stdout gb_stderr gb_saving
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
    [ -f "$1" ] || no_room "the client did not copy input $2"
    case $2 in */*) mkdir -p "work/${2%/*}" ;; esac || no_room "cannot make room for $2"
    # Moved if it is needed once: when the job starts again, the client copies it anew.
    if [ -n "$checkpoint_code" ]; then cp "$1" "work/$2"; else mv "$1" "work/$2"; fi ||
        no_room "cannot place input $2"
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
    is_digits "$job" && [ "$job" -gt 1 ] && kill -s "$1" $dashes "$group$job" 2> /dev/null
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
        kill -s KILL $marked 2> /dev/null
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
    waited=$tick
    while [ -n "$checkpoint_code" ] && [ "$waited" -lt "$grace" ] && signal_job 0; do
        sleep 1
        waited=$((waited + 1))
    done
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
        *'<suspend/>'*) if signal_job STOP; then paused=yes; else hear_again; fi ;;
        *'<resume/>'*) signal_job CONT && paused= ;;
    esac
}

# Between two parts of a run there is no command to stop: the next one's watch does it.
hear_again() { printf '\001' | dd of=boinc_mmap_file bs=1 count=1 conv=notrunc 2> /dev/null; }

# How far the command says that it is, from 0 to 1, in the file that GRIDBOT_PROGRESS names.
read_progress() {
    is_own_file work/tmp/progress || { part=; return 0; }
    part=$(dd if=work/tmp/progress bs=64 count=1 2> /dev/null | awk '
        NR == 1 && NF == 1 && $1 ~ /^[0-9.]+(e-?[0-9]+)?%?$/ {
            part = $1 + 0
            if ($1 ~ /%$/) part /= 100
            if (part > 0 && part <= 1) printf "%.6f", part
        }')
}

# The sixth kilobyte is what we tell the client: a flag, which it clears, then a text.  By a
# new time of a checkpoint it knows how much of the elapsed time a restart will not repeat.
tell() {
    [ -f boinc_mmap_file ] || return 0
    read_progress
    status_text=${part:+"<fraction_done>$part</fraction_done>"}
    [ "$used" -eq 0 ] ||
        status_text="$status_text<checkpoint_cpu_time>$used</checkpoint_cpu_time>"
    [ "$status_text" != "$last_text" ] || return 0
    flag=$(dd if=boinc_mmap_file bs=1 skip=5120 count=1 2> /dev/null | tr '\000\001' 'n!')
    [ "$flag" = n ] || return 0
    printf '%s\000' "$status_text" |
        dd of=boinc_mmap_file bs=1 seek=5121 conv=notrunc 2> /dev/null
    printf '\001' | dd of=boinc_mmap_file bs=1 seek=5120 conv=notrunc 2> /dev/null
    last_text=$status_text
}

watch() {
    ticks=$used has_client=no owner= last_text=
    if kill -0 "$PPID" 2> /dev/null; then has_client=yes; fi
    while sleep "$tick"; do
        [ -n "$job" ] || [ ! -s gb_job ] || read -r job < gb_job
        kill -0 "$$" 2> /dev/null || end_job orphaned
        [ "$has_client" = no ] || kill -0 "$PPID" 2> /dev/null || end_job orphaned
        read -r owner < gb_owner
        [ "$owner" = "$$" ] || end_job superseded
        listen
        tell
        [ -n "$paused" ] || ticks=$((ticks + tick))
        printf '%s\n' "$ticks" > gb_ticks
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
    began=$(date +%s)
    watch > /dev/null 2>&1 &
    watcher=$!
    (
        cd work || exit
        ulimit -c 0
        ulimit -f "$limit_blocks" 2> /dev/null
        exec env -i PATH="$PATH" ${LANG:+"LANG=$LANG"} ${TZ:+"TZ=$TZ"} \
            HOME="$slot/work" TMPDIR="$slot/work/tmp" \
            GRIDBOT_BOT="$bot" GRIDBOT_SEQ="$seq" GRIDBOT_REPLICA="$replica" \
            GRIDBOT_SLOT="$slot" GRIDBOT_PROGRESS="$slot/work/tmp/progress" \
            ${checkpoint_code:+"GRIDBOT_CHECKPOINT_EVERY=$checkpoint_every"} \
            ${restored:+"GRIDBOT_CHECKPOINT=1"} \
            ${devices:+"GRIDBOT_GPUS=$devices"} ${devices:+"CUDA_VISIBLE_DEVICES=$devices"} \
            ${devices:+"HIP_VISIBLE_DEVICES=$devices"} \
            $session sh -c 'echo "$$" > ../gb_job; exec "$@"' sh "$@" \
            < /dev/null >> ../gb_stdout 2>> ../gb_stderr
    )
    status=$?
    kill "$watcher" 2> /dev/null
    wait "$watcher" 2> /dev/null
    # What it left running goes too.
    [ ! -s gb_job ] || read -r job < gb_job
    [ -z "$group" ] || signal_job KILL
    end_strays
}

# --- checkpoints --------------------------------------------------------------------------

# What is kept lies beside work/, in one archive, which is replaced at once: a crash at any
# line leaves the last checkpoint or the one before it.  With its files it has what was printed.
save() {
    ended=$status
    enter_work || fail bad_checkpoint 'the working directory is not there any more'
    total=0 kept=
    for name in $checkpoint_files; do
        is_own_file "$name" || fail bad_checkpoint "checkpoint file '$name' is not there as a file"
        total=$((total + $(wc -c < "$name"))) kept="$kept ./$name"
    done
    digest=$(cat $kept | cksum)
    count_alike
    for stream in $checkpoint_streams; do
        rm -rf "$stream"
        cat "../gb_$stream" > "$stream" || no_room 'cannot keep what was printed'
        total=$((total + $(wc -c < "$stream"))) kept="$kept ./$stream"
    done
    [ "$total" -le "$limit_output" ] ||
        fail checkpoint_too_big "a checkpoint of $total bytes, at most $limit_output"
    tar -cf ../gb_saving $kept 2> /dev/null || no_room 'cannot keep the checkpoint'
    cd ..
    note_used
    sync gb_saving 2> /dev/null
    mv gb_saving gb_saved && printf '%s %s\n' "$alike" "$digest" > gb_alike ||
        no_room 'cannot keep the checkpoint'
}

# What is not kept is made again, and does not count.
count_alike() {
    alike=0 before=
    [ ! -f ../gb_alike ] || read -r alike before < ../gb_alike
    [ "$before" = "$digest" ] && is_digits "$alike" || alike=0
    alike=$((alike + 1))
    [ "$alike" -le "$most_alike" ] ||
        fail no_progress "$alike checkpoints in a row were alike: the program does not get on"
}

# The watch knows the time without what was suspended; a part that ended before it looked was
# not suspended either.
note_used() {
    if [ -s gb_ticks ]; then read -r used < gb_ticks; else
        used=$((used + $(date +%s) - began))
    fi
    printf '%s\n' "$used" > gb_used || no_room 'cannot keep the checkpoint'
}

restore() {
    [ -n "$checkpoint_code" ] && [ -f gb_saved ] || return 0
    if tar -xf gb_saved -C work 2> /dev/null; then
        restored=yes
        [ ! -s gb_used ] || read -r used < gb_used
        is_digits "$used" || used=0
        for stream in $checkpoint_streams; do mv "work/$stream" "gb_$stream"; done
    else
        has_room || no_room 'the disk is full'
        # Its machine went down while it was written: the job begins anew.
        rm -f gb_saved gb_used gb_alike
        begin
    fi
}

begin() {
    clean
    job= inputs= restored= used=0
    mkdir work work/tmp || no_room 'cannot make work'
    place_signed
    place_own "$own_names"
    restore
}

# Whether the command has saved, and not because it was beyond a limit.
is_saved() {
    [ "$status" = "$checkpoint_code" ] || return 1
    why=
    [ ! -f "$stopped" ] || read -r why < "$stopped"
    case $why in '' | told | orphaned) ;; *) return 1 ;; esac
}

run_parts() {
    begin
    run_command
    while is_saved; do
        save
        [ -z "$why" ] || return 0
        [ "$used" -le "$limit_seconds" ] || take_too_long
        begin
        run_command
    done
}

# --- the end of the command ---------------------------------------------------------------

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
        time_limit) take_too_long ;;
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

    if command -v setsid > /dev/null 2>&1; then session=setsid group=-; fi
    run_parts
    judge "$status"
    collect
    report ''
    finish 0
}

main "$@"
