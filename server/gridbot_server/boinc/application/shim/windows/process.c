/* The command: its process, the job object that holds all that it starts, and the watch over both.
 *
 * The job object ends what is in it when this process ends, however that comes.  Its own limit of
 * memory only bounds what can happen between two looks.
 */

#include "shim.h"

#include <psapi.h>

enum { MAX_PROCESSES = 1024 };

typedef LONG(WINAPI *OnProcess)(HANDLE);

char exit_text[16] = "none";

static HANDLE job;
static PROCESS_INFORMATION child;
static const char *why = "";
static DWORD code;
static int is_paused;

const char *why_ended(void) { return why; }
DWORD exit_code(void) { return code; }

/* --- the job object ------------------------------------------------------------------------ */

static void make_job(const Program *program) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    limits.BasicLimitInformation.LimitFlags =
        JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION |
        JOB_OBJECT_LIMIT_JOB_MEMORY;
    /* What is committed counts here, which may be far more than what is used. */
    limits.JobMemoryLimit = program->memory * 4 + (256 << 20);
    job = CreateJobObjectW(NULL, NULL);
    if (!job || !SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits,
                                         sizeof limits))
        no_room("cannot make a job object");
}

/* Ids of the job's processes; none where that is not told. */
static DWORD list_processes(ULONG_PTR ids[MAX_PROCESSES]) {
    static char buffer[sizeof(JOBOBJECT_BASIC_PROCESS_ID_LIST) + MAX_PROCESSES * sizeof *ids];
    JOBOBJECT_BASIC_PROCESS_ID_LIST *list = (void *)buffer;
    memset(buffer, 0, sizeof buffer);
    if (!QueryInformationJobObject(job, JobObjectBasicProcessIdList, list, sizeof buffer, NULL) &&
        GetLastError() != ERROR_MORE_DATA)
        return 0;
    DWORD count = min(list->NumberOfProcessIdsInList, MAX_PROCESSES);
    memcpy(ids, list->ProcessIdList, count * sizeof *ids);
    return count;
}

/* Before 64-bit Windows 8 and on Wine this is 0 for a job; then the command's own times count. */
void cpu_times(double *user, double *system) {
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION sums = {0};
    FILETIME made, ended, kernel_time = {0}, user_time = {0};
    if (job)
        QueryInformationJobObject(job, JobObjectBasicAccountingInformation, &sums, sizeof sums,
                                  NULL);
    if (child.hProcess) GetProcessTimes(child.hProcess, &made, &ended, &kernel_time, &user_time);
    bytes_t own_user = (bytes_t)user_time.dwHighDateTime << 32 | user_time.dwLowDateTime;
    bytes_t own_system = (bytes_t)kernel_time.dwHighDateTime << 32 | kernel_time.dwLowDateTime;
    *user = max((bytes_t)sums.TotalUserTime.QuadPart, own_user) / 1e7;
    *system = max((bytes_t)sums.TotalKernelTime.QuadPart, own_system) / 1e7;
}

static bytes_t used_memory(void) {
    static ULONG_PTR ids[MAX_PROCESSES];
    DWORD count = list_processes(ids);
    bytes_t total = 0;
    for (DWORD at = 0; at < count; at++) {
        HANDLE process = OpenProcess(PROCESS_QUERY_INFORMATION | PROCESS_VM_READ, FALSE, ids[at]);
        PROCESS_MEMORY_COUNTERS counters;
        if (process && K32GetProcessMemoryInfo(process, &counters, sizeof counters))
            total += counters.WorkingSetSize;
        if (process) CloseHandle(process);
    }
    return total;
}

static void pause_all(const char *function) {
    static ULONG_PTR ids[MAX_PROCESSES];
    HMODULE library = GetModuleHandleW(L"ntdll.dll");
    OnProcess act = library ? (OnProcess)(void *)GetProcAddress(library, function) : NULL;
    DWORD count = act ? list_processes(ids) : 0;
    for (DWORD at = 0; at < count; at++) {
        HANDLE process = OpenProcess(PROCESS_SUSPEND_RESUME, FALSE, ids[at]);
        if (!process) continue;
        act(process);
        CloseHandle(process);
    }
}

/* One round is not enough where a process may start others meanwhile. */
static void end_all(void) {
    static ULONG_PTR ids[MAX_PROCESSES];
    for (int times = 0; times < 50; times++) {
        TerminateJobObject(job, 1);
        if (!list_processes(ids)) return;
        Sleep(100);
    }
}

/* --- the watch -------------------------------------------------------------------------------- */

static void heed(Message message) {
    if (message == QUIT) why = "told";
    if (message == SUSPEND && !is_paused) pause_all("NtSuspendProcess");
    if (message == RESUME && is_paused) pause_all("NtResumeProcess");
    if (message == SUSPEND) is_paused = 1;
    if (message == RESUME) is_paused = 0;
}

static bytes_t used_disk(void) {
    return tree_size("work") + size_of("gb_stdout") + size_of("gb_stderr");
}

/* Time that the command was suspended, or the machine slept, does not count. */
static void watch(const Program *program) {
    bytes_t used = 0, last = GetTickCount64();
    while (!*why && WaitForSingleObject(child.hProcess, TICK_MS) == WAIT_TIMEOUT) {
        bytes_t now = GetTickCount64();
        if (!is_paused) used += min(now - last, 5 * TICK_MS);
        last = now;
        heed(hear());
        tell_progress();
        if (*why) break;
        if (is_client_gone()) why = "orphaned";
        else if (exists("gb_next")) why = "superseded";
        else if (is_paused) continue; /* nothing changes, and the machine is wanted for others */
        else if (used > program->seconds * 1000) why = "time_limit";
        else if (used_memory() > program->memory) why = "memory_limit";
        else if (used_disk() > program->disk) why = "disk_limit";
    }
}

/* --- the start ------------------------------------------------------------------------------------ */

/* An argument as programs with Microsoft's or mingw's library read it.  Plain ones stay as they
 * are, for programs that read the line in their own way. */
static char *quoted(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./\\:=,+@-";
    if (*word && strspn(word, plain) == strlen(word)) return format_text("%s", word);
    char *made = malloc(2 * strlen(word) + 3), *end = made;
    if (!made) ExitProcess(EXIT_CHILD_FAILED);
    size_t slashes = 0; /* just before, which count only before a quote */
    *end++ = '"';
    for (; *word; word++) {
        if (*word == '"') end = memset(end, '\\', slashes + 1) + slashes + 1;
        slashes = *word == '\\' ? slashes + 1 : 0;
        *end++ = *word;
    }
    end = memset(end, '\\', slashes) + slashes;
    *end++ = '"';
    *end = 0;
    return made;
}

/* Windows runs .bat and .cmd by a shell, which evaluates the arguments. */
static int is_program(const wchar_t *path) {
    const wchar_t *dot = wcsrchr(path, L'.');
    if (dot && (!_wcsicmp(dot, L".bat") || !_wcsicmp(dot, L".cmd"))) return 0;
    FILE *file = _wfopen(path, L"rb");
    if (!file) return 0;
    int is_one = getc(file) == 'M' && getc(file) == 'Z';
    fclose(file);
    return is_one;
}

static wchar_t *search(const char *word) {
    static wchar_t found[MAX_NAME * 8];
    wchar_t *path = _wgetenv(L"PATH");
    DWORD size = SearchPathW(path ? path : L"", wide(word), L".exe", MAX_NAME * 8, found, NULL);
    return size && size < MAX_NAME * 8 ? found : NULL;
}

/* The file of a command: in work, with or without .exe, or where PATH says. */
static wchar_t *find_program(const char *word) {
    int is_path = strpbrk(word, "/\\:") != NULL;
    int is_whole = word[0] && word[1] == ':';
    wchar_t *path = is_whole ? wide(word) : plain_path(format_text("work/%s", word));
    if (is_program(path)) return path;
    if (!is_whole) path = plain_path(format_text("work/%s.exe", word));
    if (is_program(path)) return path;
    path = is_path ? NULL : search(word);
    if (!path || !is_program(path))
        fail("not_executable", EXIT_CHILD_FAILED, "cannot execute '%s'", word);
    return path;
}

static HANDLE stream(const wchar_t *path, DWORD access, DWORD creation) {
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    HANDLE file = CreateFileW(path, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                              &inherited, creation, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) no_room("cannot open the files of the command's streams");
    return file;
}

static void start(wchar_t *path, wchar_t *line) {
    STARTUPINFOW info = {sizeof info};
    info.dwFlags = STARTF_USESTDHANDLES;
    info.hStdInput = stream(L"NUL", GENERIC_READ, OPEN_EXISTING);
    info.hStdOutput = stream(slot_path("gb_stdout"), FILE_APPEND_DATA, CREATE_ALWAYS);
    info.hStdError = stream(slot_path("gb_stderr"), FILE_APPEND_DATA, CREATE_ALWAYS);
    /* No window may wait for a volunteer's click. */
    SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX);
    BOOL is_started = CreateProcessW(path, line, NULL, NULL, TRUE,
                                     CREATE_SUSPENDED | CREATE_NO_WINDOW, NULL, plain_path("work"),
                                     &info, &child);
    DWORD error = GetLastError();
    CloseHandle(info.hStdInput);
    CloseHandle(info.hStdOutput);
    CloseHandle(info.hStdError);
    if (!is_started)
        fail("not_executable", EXIT_CHILD_FAILED, "cannot execute '%s': error %lu of Windows",
             narrow(path), error);
    if (!AssignProcessToJobObject(job, child.hProcess)) {
        TerminateProcess(child.hProcess, 1);
        no_room("cannot put the command into a job object");
    }
    ResumeThread(child.hThread);
}

void run_command(const Program *program, const List *words) {
    wchar_t *path = find_program(words->items[0]);
    char *line = quoted(words->items[0]);
    for (int at = 1; at < words->count; at++)
        line = format_text("%s %s", line, quoted(words->items[at]));
    wchar_t *whole = wide(line);
    if (wcslen(whole) > 32000)
        fail("bad_arguments", EXIT_CHILD_FAILED, "the arguments are longer than Windows allows");
    make_job(program);
    start(path, whole);
    watch(program);
    int is_ended = !*why;
    end_all(); /* what it left running goes too */
    if (is_ended && GetExitCodeProcess(child.hProcess, &code))
        snprintf(exit_text, sizeof exit_text, "%ld", (LONG)code);
    /* It may have ended between two looks. */
    if (is_ended && used_disk() > program->disk) why = "disk_limit";
}
