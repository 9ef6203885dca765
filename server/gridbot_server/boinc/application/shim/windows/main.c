/* Runs one command of a GridBot BOT under a stock BOINC client on Windows.
 *
 * What it may run stands at the end of this program's own file, in lines of text, and is signed
 * with it.  The client's command line brings only values for that command: words that are decoded,
 * checked against their types and passed on as arguments.  Nothing is evaluated.
 *
 * It keeps the contract of shim.sh.  The command runs in work\, below the slot: its input files
 * there, a clean environment, stdout and stderr in files.  At its end this program
 *   - writes the ends of both logs and how it ended to stderr.txt, for the server,
 *   - leaves the outputs in gb_out: one file as it is, several of them as one bundle,
 *   - leaves boinc_finish_called, so that the client takes the end for one.
 * Its messages come by shared memory, and everything that the command starts is in a job object,
 * which ends with this process.
 */

#include "shim.h"

#include <stdarg.h>

#define LOG_BYTES 24000 /* of each log; the client keeps 63 KB of stderr */

static List inputs; /* names in work */

/* --- how it ends ------------------------------------------------------------------------ */

static void write_log(FILE *out, const char *log) {
    char *name = format_text("gb_%s", log);
    fprintf(out, "\n[gridbot %s]\n", log);
    FILE *file = open_file(name, L"rb");
    if (!file) return;
    if (_fseeki64(file, -LOG_BYTES, SEEK_END)) rewind(file);
    for (int c; (c = getc(file)) != EOF;) putc(c ? c : '?', out); /* a C string to the client */
    fclose(file);
}

/* Minutes and seconds, as shells write them. */
static char *time_text(double seconds) {
    int minutes = (int)(seconds / 60);
    return format_text("%dm%.3fs", minutes, seconds - 60.0 * minutes);
}

/* The server reads the last line. */
static void report(const char *reason) {
    double user, system;
    cpu_times(&user, &system);
    FILE *out = open_file("stderr.txt", L"ab");
    if (!out) no_room("cannot write stderr.txt");
    write_log(out, "stdout");
    write_log(out, "stderr");
    fprintf(out, "\n[gridbot end reason=%s exit=%s cpu=%s+%s]\n", reason, exit_text,
            time_text(user), time_text(system));
    if (fclose(out)) no_room("cannot write stderr.txt");
}

/* The file goes last: a process that lives on after it is aborted. */
__attribute__((noreturn)) static void finish(int code) {
    char *text = format_text("%d\n", code);
    if (!write_text("boinc_finish_called", text, 0)) no_room("cannot write boinc_finish_called");
    ExitProcess(code);
}

void fail(const char *reason, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = calloc(1, size + 2);
    va_start(arguments, format);
    vsnprintf(text, size + 1, format, arguments);
    va_end(arguments);
    strcat(text, "\n");
    write_text("gb_stderr", text, 1);
    report(reason);
    finish(code);
}

/* The client tries again in an hour, and gives up after 100 times. */
__attribute__((noreturn)) static void put_off(const char *text) {
    write_text("boinc_temporary_exit", format_text("3600\n%s\n", text), 0);
    ExitProcess(0);
}

/* Not the job's fault. */
void no_room(const char *text) {
    clean();
    DeleteFileW(slot_path("boinc_finish_called"));
    put_off(text);
}

/* Without a finish file: the client starts the job again when it wants to. */
void leave(void) { ExitProcess(0); }

static int has_room(void) {
    ULARGE_INTEGER left;
    return !GetDiskFreeSpaceExW(slot_path(""), &left, NULL, NULL) || left.QuadPart > 256 << 10;
}

static void judge(const Program *program) {
    const char *why = why_ended();
    if (!strcmp(why, "time_limit"))
        fail(why, EXIT_TIME_LIMIT, "took longer than %llu s", program->seconds);
    if (!strcmp(why, "memory_limit"))
        fail(why, EXIT_MEMORY_LIMIT, "used more than %llu bytes of memory", program->memory);
    if (!strcmp(why, "disk_limit"))
        fail(why, EXIT_DISK_LIMIT, "used more than %llu bytes of disk", program->disk);
    if (*why) leave();
    DWORD code = exit_code();
    if (!code) return;
    if (!has_room()) no_room("the disk is full");
    /* With these Windows ends programs when it shuts down, and then it ends this one next. */
    if (code == 0x40010004 || code == 0xC000013A || code == 0xC0000142) Sleep(TICK_MS);
    report("exit_nonzero");
    /* Some of the others would make the client start the job again. */
    finish(code < 256 ? code : EXIT_CHILD_FAILED);
}

/* --- input files ---------------------------------------------------------------------------- */

static void place(const char *from, const char *name) {
    char *target = format_text("work/%s", name);
    if (!is_safe_name(name))
        fail("bad_arguments", EXIT_CHILD_FAILED, "input '%s' has no usable name", name);
    if (exists(target))
        fail("bad_arguments", EXIT_CHILD_FAILED, "input '%s' is there twice", name);
    if (!is_file(from)) no_room(format_text("the client did not copy input %s", name));
    /* Moved: when the job starts again, the client copies it anew. */
    if (!make_parents(target) || !move_file(from, target))
        no_room(format_text("cannot place input %s", name));
    add(&inputs, format_text("%s", name));
}

static void place_all(const Program *program, char *own) {
    for (int at = 0; at < program->inputs.count; at++)
        place(format_text("gb_%d", at), program->inputs.items[at]);
    int number = 0;
    for (char *name = strtok(own, ","); name; name = strtok(NULL, ","))
        place(format_text("gb_own_%d", number++), name);
}

/* --- outputs -------------------------------------------------------------------------------- */

static int is_stream(const char *name) { return !strcmp(name, "stdout") || !strcmp(name, "stderr"); }

static char *path_of(const char *name) {
    return format_text(is_stream(name) ? "gb_%s" : "work/%s", name);
}

static void pick(List *picked, const char *name) {
    if (picked->count <= MAX_OUTPUTS && !has(picked, name)) add(picked, format_text("%s", name));
}

static int is_input(const char *name) {
    for (int at = 0; at < inputs.count; at++)
        if (!_stricmp(inputs.items[at], name)) return 1;
    return 0;
}

static void pick_matches(const char *pattern, List *picked) {
    List found = {0};
    find_matches(pattern, &found);
    for (int at = 0; at < found.count; at++) {
        const char *name = found.items[at];
        if (!is_own_file(format_text("work/%s", name)) || is_input(name)) continue;
        if (!is_safe_name(name))
            fail("bad_output_name", EXIT_CHILD_FAILED, "'%s' is no usable file name", name);
        pick(picked, name);
    }
}

static void pick_outputs(const Program *program, List *picked) {
    for (int at = 0; at < program->picks.count; at++) {
        const char *name = program->picks.items[at] + 1;
        if (program->picks.items[at][0] == '*') pick_matches(name, picked);
        else if (is_stream(name) || is_own_file(format_text("work/%s", name))) pick(picked, name);
        else
            fail("missing_output", EXIT_CHILD_FAILED, "output '%s' is not there as a file", name);
    }
}

static int by_bytes(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static int bundle(const List *picked) {
    FILE *out = open_file("gb_out", L"wb");
    if (!out) return 0;
    int is_good = fputs("gridbot-outputs 1\n", out) >= 0;
    for (int at = 0; at < picked->count && is_good; at++) {
        char *path = path_of(picked->items[at]);
        is_good = fprintf(out, "%llu %s\n", size_of(path), picked->items[at]) > 0 &&
                  copy_into(out, path);
    }
    return !fclose(out) && is_good;
}

static int copy_stream(const char *name) {
    FILE *out = open_file("gb_out", L"wb");
    int is_good = out && copy_into(out, path_of(name));
    return out && !fclose(out) && is_good;
}

static int gather(const char *single, const List *picked) {
    if (!single) return bundle(picked);
    return is_stream(single) ? copy_stream(single) : move_file(path_of(single), "gb_out");
}

static void collect(const Program *program) {
    List picked = {0};
    pick_outputs(program, &picked);
    if (picked.count)
        qsort(picked.items, picked.count, sizeof *picked.items, by_bytes);
    if (picked.count > MAX_OUTPUTS)
        fail("too_many_outputs", EXIT_CHILD_FAILED, "more than %d outputs", MAX_OUTPUTS);
    bytes_t total = 0;
    for (int at = 0; at < picked.count; at++) total += size_of(path_of(picked.items[at]));
    if (total > program->output)
        fail("output_too_big", EXIT_CHILD_FAILED, "outputs of %llu bytes, at most %llu", total,
             program->output);
    if (picked.count && !gather(program->single, &picked)) no_room("cannot gather the outputs");
}

/* --- the way of a job ------------------------------------------------------------------------- */

/* A client that died and came back starts us while our predecessor may still be there: it holds
 * gb_owner open as long as it lives, and ends when it sees gb_next or that its client is gone. */
static void own_slot(void) {
    write_text("gb_next", "", 0);
    for (int times = 0; times < 40; times++) {
        HANDLE owner = CreateFileW(slot_path("gb_owner"), GENERIC_WRITE, 0, NULL, CREATE_ALWAYS,
                                   FILE_FLAG_DELETE_ON_CLOSE, NULL);
        if (owner != INVALID_HANDLE_VALUE) {
            DeleteFileW(slot_path("gb_next"));
            return;
        }
        Sleep(500);
    }
    put_off("the slot is still in use, or nothing can be written there");
}

static char *required(int count, char **words, int at) {
    if (at >= count) fail("bad_arguments", EXIT_CHILD_FAILED, "the command line is too short");
    return words[at];
}

static void set_id(const char *name, const char *word) {
    char *variable = format_text("GRIDBOT_%s", name);
    SetEnvironmentVariableA(variable, take("int", name, word));
}

static void set_devices(int count, char **words) {
    char *devices = format_text("");
    for (int at = 0; at + 1 < count && !strcmp(words[at], "--device"); at += 2) {
        if (!is_digits(words[at + 1]))
            fail("bad_arguments", EXIT_CHILD_FAILED, "device '%s' is no number", words[at + 1]);
        devices = format_text("%s%s%s", devices, *devices ? "," : "", words[at + 1]);
    }
    if (!*devices) return;
    SetEnvironmentVariableA("GRIDBOT_GPUS", devices);
    SetEnvironmentVariableA("CUDA_VISIBLE_DEVICES", devices);
    SetEnvironmentVariableA("HIP_VISIBLE_DEVICES", devices);
}

/* What a program needs to start, and nothing of the volunteer's. */
static void clear_environment(void) {
    static const wchar_t *const kept[] = {
        L"SystemRoot", L"SystemDrive", L"windir", L"ComSpec", L"PATH", L"PATHEXT", L"OS", L"TZ",
        L"NUMBER_OF_PROCESSORS", L"PROCESSOR_ARCHITECTURE", L"ProgramFiles", L"ProgramData",
    };
    wchar_t *all = GetEnvironmentStringsW();
    for (wchar_t *entry = all; *entry; entry += wcslen(entry) + 1) {
        wchar_t *end = wcschr(entry + 1, L'='); /* those of drives begin with one */
        if (!end) continue;
        wchar_t *name = _wcsdup(entry);
        name[end - entry] = 0;
        int is_kept = 0;
        for (size_t at = 0; at < sizeof kept / sizeof *kept; at++)
            is_kept |= !_wcsicmp(name, kept[at]);
        if (!is_kept) SetEnvironmentVariableW(name, NULL);
    }
    FreeEnvironmentStringsW(all);
    static const wchar_t *const homes[] = {L"HOME", L"USERPROFILE"};
    static const wchar_t *const temporaries[] = {L"TMPDIR", L"TEMP", L"TMP"};
    for (int at = 0; at < 2; at++) SetEnvironmentVariableW(homes[at], plain_path("work"));
    for (int at = 0; at < 3; at++) SetEnvironmentVariableW(temporaries[at], plain_path("work/tmp"));
    SetEnvironmentVariableW(L"GRIDBOT_SLOT", plain_path(""));
    SetEnvironmentVariableW(L"GRIDBOT_PROGRESS", plain_path("work/tmp/progress"));
}

static void begin(void) {
    clean();
    DeleteFileW(slot_path("boinc_temporary_exit"));
    DeleteFileW(slot_path("boinc_finish_called"));
    if (!has_room()) no_room("the disk is full");
    if (!CreateDirectoryW(slot_path("work"), NULL) ||
        !CreateDirectoryW(slot_path("work/tmp"), NULL))
        no_room("cannot make work");
    clear_environment();
}

int main(int count, char **words) {
    Program program = {0};
    List values = {0}, command = {0};
    find_slot();
    own_slot();
    begin();
    read_program(&program);
    find_client();

    /* Clients put an unquoted path before the words, which may hold spaces. */
    while (count && words[0][0] != ':') count--, words++;
    static const char *const ids[] = {"BOT", "SEQ", "REPLICA"};
    for (int at = 0; at < 3; at++) set_id(ids[at], required(count, words, at));
    char *own = decode(required(count, words, 3));
    for (int at = 0; at < program.names.count; at++)
        add(&values, take(program.types.items[at], program.names.items[at],
                          required(count, words, 4 + at)));
    int end = 4 + program.names.count;
    if (strcmp(required(count, words, end), "."))
        fail("bad_arguments", EXIT_CHILD_FAILED, "the command line has another number of values");
    set_devices(count - end - 1, words + end + 1);
    for (int at = 0; at < program.words.count; at++)
        add(&command, fill(program.words.items[at], &values));

    place_all(&program, own);
    run_command(&program, &command);
    judge(&program);
    collect(&program);
    report("");
    finish(0);
}

/* --- texts and lists ---------------------------------------------------------------------------- */

void add(List *list, char *item) {
    list->items = realloc(list->items, (list->count + 1) * sizeof *list->items);
    if (!list->items || !item) ExitProcess(EXIT_CHILD_FAILED);
    list->items[list->count++] = item;
}

int has(const List *list, const char *item) {
    for (int at = 0; at < list->count; at++)
        if (!strcmp(list->items[at], item)) return 1;
    return 0;
}

char *format_text(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = malloc(size + 1);
    if (!text) ExitProcess(EXIT_CHILD_FAILED);
    va_start(arguments, format);
    vsnprintf(text, size + 1, format, arguments);
    va_end(arguments);
    return text;
}
