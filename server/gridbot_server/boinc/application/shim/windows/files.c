/* The slot and its files.  Names are of plain characters, with / between parts.
 *
 * Paths are passed in the form \\?\ that Windows takes as it is: no device has such a name.
 */

#include "shim.h"

static wchar_t *slot;

void find_slot(void) {
    DWORD size = GetCurrentDirectoryW(0, NULL);
    slot = malloc(size * sizeof *slot);
    if (!slot || !GetCurrentDirectoryW(size, slot)) ExitProcess(EXIT_CHILD_FAILED);
}

wchar_t *wide(const char *text) {
    int size = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    wchar_t *made = calloc(size + 1, sizeof *made);
    if (!made) ExitProcess(EXIT_CHILD_FAILED);
    MultiByteToWideChar(CP_UTF8, 0, text, -1, made, size);
    return made;
}

char *narrow(const wchar_t *text) {
    int size = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
    char *made = calloc(size + 1, 1);
    if (!made) ExitProcess(EXIT_CHILD_FAILED);
    WideCharToMultiByte(CP_UTF8, 0, text, -1, made, size, NULL, NULL);
    return made;
}

static wchar_t *below_slot(const wchar_t *before, const char *name) {
    wchar_t *tail = wide(name);
    size_t size = wcslen(before) + wcslen(slot) + wcslen(tail) + 2;
    wchar_t *path = calloc(size, sizeof *path);
    if (!path) ExitProcess(EXIT_CHILD_FAILED);
    wcscat(wcscat(path, before), slot);
    if (*tail) wcscat(wcscat(path, L"\\"), tail);
    for (wchar_t *c = path + wcslen(before); *c; c++)
        if (*c == L'/') *c = L'\\';
    free(tail);
    return path;
}

wchar_t *plain_path(const char *name) { return below_slot(L"", name); }

/* A share's name begins with two backslashes and has another form, which no client uses. */
wchar_t *slot_path(const char *name) {
    return below_slot(slot[0] == L'\\' ? L"" : L"\\\\?\\", name);
}

/* --- names ------------------------------------------------------------------------------ */

static int is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* CON, nul.txt, com1 and so on are devices in every directory. */
static int is_device(const char *part, size_t size) {
    static const char *const devices[] = {"con", "prn", "aux", "nul"};
    static const char *const numbered[] = {"com", "lpt"};
    size_t stem = strcspn(part, "./");
    if (stem > size) stem = size;
    for (int at = 0; at < 4; at++)
        if (stem == 3 && !_strnicmp(part, devices[at], 3)) return 1;
    for (int at = 0; at < 2; at++)
        if (stem == 4 && !_strnicmp(part, numbered[at], 3) && part[3] >= '0' && part[3] <= '9')
            return 1;
    return 0;
}

/* As shim.sh has it, and nothing that Windows would take for another name. */
int is_safe_name(const char *name) {
    if (*name == '.' || strlen(name) > MAX_NAME) return 0;
    for (const char *part = name;; part++) {
        size_t size = strcspn(part, "/");
        if (!size || part[size - 1] == '.' || is_device(part, size)) return 0;
        if (!is_letter(*part) && *part != '_' && *part != '.') return 0;
        for (size_t at = 0; at < size; at++)
            if (!is_letter(part[at]) && !strchr("._+=@%-", part[at])) return 0;
        part += size;
        if (!*part) return 1;
    }
}

/* --- what is there ------------------------------------------------------------------------- */

static DWORD attributes_of(const char *name) {
    wchar_t *path = slot_path(name);
    DWORD found = GetFileAttributesW(path);
    free(path);
    return found;
}

int exists(const char *name) { return attributes_of(name) != INVALID_FILE_ATTRIBUTES; }

int is_file(const char *name) {
    DWORD found = attributes_of(name);
    return found != INVALID_FILE_ATTRIBUTES && !(found & FILE_ATTRIBUTE_DIRECTORY);
}

/* A regular file that no link leads to. */
int is_own_file(const char *name) {
    if (!is_file(name)) return 0;
    char *part = format_text("%s", name);
    for (char *end = part; end; end = strrchr(part, '/')) {
        if (end != part) *end = 0;
        DWORD found = attributes_of(part);
        if (found == INVALID_FILE_ATTRIBUTES || found & FILE_ATTRIBUTE_REPARSE_POINT) return 0;
    }
    return 1;
}

/* By its path: what a directory tells of an open file may be old. */
static bytes_t size_at(const wchar_t *path) {
    WIN32_FILE_ATTRIBUTE_DATA data;
    if (!GetFileAttributesExW(path, GetFileExInfoStandard, &data)) return 0;
    return (bytes_t)data.nFileSizeHigh << 32 | data.nFileSizeLow;
}

bytes_t size_of(const char *name) {
    wchar_t *path = slot_path(name);
    bytes_t size = size_at(path);
    free(path);
    return size;
}

/* --- whole directories ----------------------------------------------------------------------- */

typedef void (*Visit)(const wchar_t *path, DWORD attributes, void *result);

/* Visits what is in a directory and then the directory; links are visited, not followed. */
static void walk(const wchar_t *path, int depth, Visit visit, void *result) {
    DWORD attributes = GetFileAttributesW(path);
    if (attributes == INVALID_FILE_ATTRIBUTES) return;
    int is_folder = attributes & FILE_ATTRIBUTE_DIRECTORY &&
                    !(attributes & FILE_ATTRIBUTE_REPARSE_POINT);
    size_t room = wcslen(path) + MAX_PATH + 2;
    wchar_t *below = is_folder && depth ? calloc(room, sizeof *below) : NULL;
    WIN32_FIND_DATAW *found = below ? malloc(sizeof *found) : NULL;
    if (found) {
        wcscat(wcscpy(below, path), L"\\*");
        HANDLE search = FindFirstFileW(below, found);
        int is_more = search != INVALID_HANDLE_VALUE;
        for (; is_more; is_more = FindNextFileW(search, found)) {
            if (!wcscmp(found->cFileName, L".") || !wcscmp(found->cFileName, L"..")) continue;
            wcscat(wcscat(wcscpy(below, path), L"\\"), found->cFileName);
            walk(below, depth - 1, visit, result);
        }
        if (search != INVALID_HANDLE_VALUE) FindClose(search);
    }
    free(found);
    free(below);
    visit(path, is_folder && !depth ? INVALID_FILE_ATTRIBUTES : attributes, result);
}

static void add_size(const wchar_t *path, DWORD attributes, void *result) {
    bytes_t *total = result;
    if (attributes == INVALID_FILE_ATTRIBUTES) *total = 1ULL << 62; /* deeper than anybody needs */
    else if (!(attributes & FILE_ATTRIBUTE_DIRECTORY)) *total += size_at(path);
}

bytes_t tree_size(const char *name) {
    wchar_t *path = slot_path(name);
    bytes_t total = 0;
    walk(path, MAX_DEPTH, add_size, &total);
    free(path);
    return total;
}

static void remove_one(const wchar_t *path, DWORD attributes, void *result) {
    (void)result;
    SetFileAttributesW(path, FILE_ATTRIBUTE_NORMAL);
    for (int times = 0; times < 5; times++) { /* others may look at it for a moment */
        if (attributes & FILE_ATTRIBUTE_DIRECTORY ? RemoveDirectoryW(path) : DeleteFileW(path))
            return;
        DWORD error = GetLastError(); /* a file that somebody has open stays in its directory */
        if (error != ERROR_SHARING_VIOLATION && error != ERROR_DIR_NOT_EMPTY) return;
        Sleep(200);
    }
}

/* The command may have made anything of its directory, also a link to elsewhere. */
void clean(void) {
    static const char *const made[] = {"work", "gb_out", "gb_stdout", "gb_stderr"};
    for (int at = 0; at < 4; at++) walk(slot_path(made[at]), MAX_DEPTH, remove_one, NULL);
}

/* --- reading and writing ------------------------------------------------------------------------ */

int make_parents(const char *name) {
    char *part = format_text("%s", name);
    for (char *end = strchr(part, '/'); end; end = strchr(end + 1, '/')) {
        *end = 0;
        if (!CreateDirectoryW(slot_path(part), NULL) && GetLastError() != ERROR_ALREADY_EXISTS)
            return 0;
        *end = '/';
    }
    return 1;
}

int move_file(const char *from, const char *to) {
    for (int times = 0; times < 10; times++) {
        if (MoveFileExW(slot_path(from), slot_path(to), MOVEFILE_REPLACE_EXISTING)) return 1;
        if (GetLastError() != ERROR_SHARING_VIOLATION) return 0;
        Sleep(200);
    }
    return 0;
}

FILE *open_file(const char *name, const wchar_t *mode) {
    wchar_t *path = slot_path(name);
    FILE *file = _wfopen(path, mode);
    free(path);
    return file;
}

int write_text(const char *name, const char *text, int append) {
    FILE *file = open_file(name, append ? L"ab" : L"wb");
    if (!file) return 0;
    int is_good = fputs(text, file) >= 0;
    return !fclose(file) && is_good;
}

/* The first bytes of a file as a text; NULL where there is none. */
char *read_text(const char *name, size_t most) {
    FILE *file = open_file(name, L"rb");
    char *text = file ? calloc(1, most + 1) : NULL;
    if (text) fread(text, 1, most, file);
    if (file) fclose(file);
    return text;
}

int copy_into(FILE *out, const char *name) {
    FILE *file = open_file(name, L"rb");
    if (!file) return 0;
    static char chunk[1 << 16];
    size_t size = 0;
    int is_good = 1;
    while (is_good && (size = fread(chunk, 1, sizeof chunk, file)))
        is_good = fwrite(chunk, 1, size, out) == size;
    is_good = is_good && !ferror(file);
    fclose(file);
    return is_good;
}

/* --- patterns --------------------------------------------------------------------------------------- */

/* The end of a set [...] that begins at a pattern; NULL where it is none. */
static const char *set_end(const char *set) {
    const char *at = set + 1 + (set[1] == '!');
    if (*at == ']') at++;
    while (*at && *at != ']') at++;
    return *at ? at : NULL;
}

static int is_in_set(const char *set, const char *end, char c) {
    int is_not = set[1] == '!', is_in = 0;
    for (const char *at = set + 1 + is_not; at < end; at++) {
        if (at + 2 < end && at[1] == '-') {
            is_in |= c >= at[0] && c <= at[2];
            at += 2;
        } else is_in |= c == *at;
    }
    return is_in != is_not;
}

/* Whether a name matches a pattern as in a shell; goes back to the last * only. */
static int matches(const char *pattern, const char *name) {
    const char *star = NULL, *again = NULL;
    while (*name) {
        const char *end = *pattern == '[' ? set_end(pattern) : NULL;
        if (*pattern == '*') {
            star = ++pattern;
            again = name;
        } else if (end ? is_in_set(pattern, end, *name) : *pattern == '?' || *pattern == *name) {
            pattern = end ? end + 1 : pattern + 1;
            name++;
        } else if (star) {
            pattern = star;
            name = ++again;
        } else return 0;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

static void match_below(const char *folder, char *pattern, List *found) {
    char *rest = strchr(pattern, '/');
    if (rest) *rest = 0;
    WIN32_FIND_DATAW data;
    HANDLE search = FindFirstFileW(slot_path(format_text("work/%s*", folder)), &data);
    int is_more = search != INVALID_HANDLE_VALUE;
    for (; is_more; is_more = FindNextFileW(search, &data)) {
        char *name = narrow(data.cFileName);
        if (*name == '.' || !matches(pattern, name)) continue;
        char *whole = format_text("%s%s", folder, name);
        int is_folder = data.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY;
        int is_link = data.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT;
        if (!rest && !is_folder) add(found, whole);
        if (rest && is_folder && !is_link) match_below(format_text("%s/", whole), rest + 1, found);
    }
    if (search != INVALID_HANDLE_VALUE) FindClose(search);
    if (rest) *rest = '/';
}

void find_matches(const char *pattern, List *found) {
    match_below("", format_text("%s", pattern), found);
}
