/* A program for Windows that does what its first argument says, and the client's side of its
 * shared memory: for the tests of the shim. */

#include <windows.h>

#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_wide(const wchar_t *text) {
    char plain[4096];
    WideCharToMultiByte(CP_UTF8, 0, text, -1, plain, sizeof plain, NULL, NULL);
    for (char *c = plain; *c; c++) printf("%02x", (unsigned char)*c);
    printf("\n");
}

static int show_arguments(int count, wchar_t **words) {
    for (int at = 2; at < count; at++) print_wide(words[at]);
    return 0;
}

static int show_environment(void) {
    wchar_t folder[1024];
    GetCurrentDirectoryW(1024, folder);
    _putws(folder);
    wchar_t *all = GetEnvironmentStringsW();
    for (wchar_t *entry = all; *entry; entry += wcslen(entry) + 1) _putws(entry);
    return getchar() == EOF ? 0 : 1;
}

static int hold_memory(wchar_t **words) {
    size_t size = (size_t)_wtoi(words[2]) << 20;
    volatile char *memory = malloc(size);
    if (!memory) return 9;
    for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
    Sleep(_wtoi(words[3]) * 1000);
    return 0;
}

/* Starts itself once more, in a group and without this console, and waits for it or does not. */
static int start_other(wchar_t **words, int waits) {
    wchar_t path[1024], line[2048];
    GetModuleFileNameW(NULL, path, 1024);
    swprintf(line, 2048, L"\"%ls\" %ls %ls %ls", path, words[2], words[3], words[4]);
    STARTUPINFOW info = {.cb = sizeof info};
    PROCESS_INFORMATION made;
    DWORD flags = CREATE_NEW_PROCESS_GROUP | DETACHED_PROCESS;
    if (!CreateProcessW(path, line, NULL, NULL, FALSE, flags, NULL, NULL, &info, &made)) return 8;
    if (waits) WaitForSingleObject(made.hProcess, INFINITE);
    return 0;
}

static int write_file(wchar_t **words) {
    FILE *file = _wfopen(words[2], L"wb");
    if (!file) return 7;
    static char kilobyte[1024];
    for (int left = _wtoi(words[3]); left > 0; left--) fwrite(kilobyte, 1, 1024, file);
    return fclose(file);
}

static int show_file(const wchar_t *name) {
    FILE *file = _wfopen(name, L"rb");
    if (!file) return 6;
    _setmode(_fileno(stdout), _O_BINARY);
    for (int c; (c = getc(file)) != EOF;) putchar(c);
    return fclose(file);
}

/* Writes its arguments into files: a name, its text, a name, its text. */
static int write_texts(int count, wchar_t **words) {
    for (int at = 2; at + 1 < count; at += 2) {
        wchar_t *slash = wcsrchr(words[at], L'/');
        if (slash) {
            *slash = 0;
            CreateDirectoryW(words[at], NULL);
            *slash = L'/';
        }
        FILE *file = _wfopen(words[at], L"wb");
        if (!file) return 5;
        fprintf(file, "%ls", words[at + 1]);
        fclose(file);
    }
    return 0;
}

static int use_cpu(void) {
    FILETIME made, ended, system, user;
    do GetProcessTimes(GetCurrentProcess(), &made, &ended, &system, &user);
    while (user.dwLowDateTime < 3000000);
    return 0;
}

static int crash(void) {
    volatile int *nowhere = NULL;
    return *nowhere;
}

static int tell_progress(wchar_t **words) {
    FILE *file = _wfopen(_wgetenv(L"GRIDBOT_PROGRESS"), L"wb");
    if (!file) return 4;
    fprintf(file, "%ls\n", words[2]);
    fclose(file);
    Sleep(600000);
    return 0;
}

/* Counts in a file of its folder's parent, so that one sees whether it goes on. */
static int count_on(void) {
    for (int number = 1; number < 100000; number++) {
        FILE *file = fopen("../count", "wb");
        if (file) fprintf(file, "%d", number), fclose(file);
        Sleep(20);
    }
    return 0;
}

/* BOINC's client: makes the memory, and passes lines of its input on as messages. */
static int be_client(wchar_t **words) {
    HANDLE made = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, 0, 8192, words[2]);
    char *shared = MapViewOfFile(made, FILE_MAP_ALL_ACCESS, 0, 0, 0), line[200];
    printf("%lu\n", GetCurrentProcessId());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = 0;
        if (!strcmp(line, "status")) {
            printf("%d %s\n", shared[5120], shared + 5121);
            shared[5120] = 0;
        } else if (!strcmp(line, "heard")) printf("%d\n", !shared[0]);
        else {
            strcpy(shared + 1, line);
            shared[0] = 1;
            printf("told\n");
        }
        fflush(stdout);
    }
    return 0;
}

int wmain(int count, wchar_t **words) {
    const wchar_t *what = count > 1 ? words[1] : L"";
    if (!wcscmp(what, L"arguments")) return show_arguments(count, words);
    if (!wcscmp(what, L"environment")) return show_environment();
    if (!wcscmp(what, L"exit")) return _wtoi(words[2]);
    if (!wcscmp(what, L"crash")) return crash();
    if (!wcscmp(what, L"cpu")) return use_cpu();
    if (!wcscmp(what, L"hold")) return hold_memory(words);
    if (!wcscmp(what, L"leave")) return start_other(words, 0);
    if (!wcscmp(what, L"wait")) return start_other(words, 1);
    if (!wcscmp(what, L"fill")) return write_file(words);
    if (!wcscmp(what, L"texts")) return write_texts(count, words);
    if (!wcscmp(what, L"progress")) return tell_progress(words);
    if (!wcscmp(what, L"count")) return count_on();
    if (!wcscmp(what, L"client")) return be_client(words);
    if (!wcscmp(what, L"sleep")) return Sleep(600000), 0;
    if (!wcscmp(what, L"show")) return show_file(words[2]);
    if (!wcscmp(what, L"say")) return printf("out\n"), fprintf(stderr, "err\n"), 0;
    return 3;
}
