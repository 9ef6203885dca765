/* Reads what may be run from the end of this program's own file, and values from the command line.
 *
 * Each line is a key and words.  A word is a text in which all but plain characters stand as \0 and
 * three octal digits.  The last line, of fixed size, says how many bytes the lines have.
 */

#include "shim.h"

#define LAST_LINE "size 0000000000\n"

static int is_octal(char c) { return c >= '0' && c <= '7'; }

/* The text of a word; NULL for no such word. */
static char *plain(const char *word) {
    char *text = malloc(strlen(word) + 1), *end = text;
    while (*word) {
        if (*word != '\\') {
            *end++ = *word++;
            continue;
        }
        if (word[1] != '0' || !is_octal(word[2]) || !is_octal(word[3]) || !is_octal(word[4]))
            return NULL;
        int byte = (word[2] - '0') << 6 | (word[3] - '0') << 3 | (word[4] - '0');
        if (!byte || byte > 255) return NULL;
        *end++ = (char)byte;
        word += 5;
    }
    *end = 0;
    return text;
}

char *decode(const char *word) {
    char *text = *word == ':' ? plain(word + 1) : NULL;
    if (!text)
        fail("bad_arguments", EXIT_CHILD_FAILED, "argument '%s' is not encoded as expected", word);
    return text;
}

/* --- values ---------------------------------------------------------------------------- */

int is_digits(const char *text) {
    return *text && strspn(text, "0123456789") == strlen(text);
}

static const char *unsigned_part(const char *text) {
    return *text == '-' || *text == '+' ? text + 1 : text;
}

static int is_int(const char *text) { return is_digits(unsigned_part(text)); }

static int is_real(const char *text) {
    text = unsigned_part(text);
    size_t before = strspn(text, "0123456789"), after = 0;
    text += before;
    if (*text == '.') after = strspn(++text, "0123456789");
    text += after;
    if (*text == 'e' || *text == 'E') return before + after && is_int(text + 1);
    return before + after && !*text;
}

char *take(const char *type, const char *name, const char *word) {
    char *value = decode(word);
    int is_good = !strcmp(type, "int")    ? is_int(value)
                  : !strcmp(type, "real") ? is_real(value)
                                          : !strcmp(type, "text");
    if (!is_good)
        fail("bad_arguments", EXIT_CHILD_FAILED, "placeholder {%s} takes %s, not '%s'", name, type,
             value);
    return value;
}

/* --- the command --------------------------------------------------------------------------- */

/* An argument: parts that are a text after a ', or the number of a value after a $. */
char *fill(const char *parts, const List *values) {
    char *copy = format_text("%s", parts), *filled = format_text("");
    for (char *part = strtok(copy, " "); part; part = strtok(NULL, " ")) {
        int number = *part == '$' ? atoi(part + 1) - 1 : -1;
        char *text = *part == '\'' ? plain(part + 1)
                     : number >= 0 && number < values->count ? values->items[number]
                                                             : NULL;
        if (!text) ExitProcess(EXIT_CHILD_FAILED);
        filled = format_text("%s%s", filled, text);
    }
    return filled;
}

/* --- the lines ------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void damaged(void) {
    fail("client_error", EXIT_CHILD_FAILED, "this program's own file is damaged");
}

static char *own_lines(void) {
    wchar_t path[MAX_NAME * 8];
    DWORD length = GetModuleFileNameW(NULL, path, sizeof path / sizeof *path);
    FILE *file = length && length < sizeof path / sizeof *path ? _wfopen(path, L"rb") : NULL;
    char last[sizeof LAST_LINE] = {0};
    int last_size = sizeof LAST_LINE - 1;
    if (!file || fseek(file, -last_size, SEEK_END) || !fread(last, last_size, 1, file)) damaged();
    long size = strncmp(last, "size ", 5) ? 0 : strtol(last + 5, NULL, 10);
    if (size <= last_size || size > 1 << 20 || fseek(file, -size, SEEK_END)) damaged();
    char *lines = calloc(1, size + 1);
    if (!lines || !fread(lines, size, 1, file)) damaged();
    fclose(file);
    return lines;
}

static void read_line(Program *program, const char *key, char *rest) {
    if (!strcmp(key, "seconds")) program->seconds = strtoull(rest, NULL, 10);
    else if (!strcmp(key, "memory")) program->memory = strtoull(rest, NULL, 10);
    else if (!strcmp(key, "disk")) program->disk = strtoull(rest, NULL, 10);
    else if (!strcmp(key, "output")) program->output = strtoull(rest, NULL, 10);
    else if (!strcmp(key, "int") || !strcmp(key, "real") || !strcmp(key, "text")) {
        add(&program->types, format_text("%s", key));
        add(&program->names, plain(rest));
    } else if (!strcmp(key, "input")) add(&program->inputs, plain(rest));
    else if (!strcmp(key, "word")) add(&program->words, rest);
    else if (!strcmp(key, "pick")) add(&program->picks, format_text("=%s", plain(rest)));
    else if (!strcmp(key, "match")) add(&program->picks, format_text("*%s", rest));
    else if (!strcmp(key, "single")) program->single = plain(rest);
    else if (strcmp(key, "#") && strcmp(key, "size")) damaged();
}

void read_program(Program *program) {
    char *next = own_lines();
    while (*next) {
        char *line = next, *end = strchr(line, '\n');
        if (!end) damaged();
        *end = 0;
        next = end + 1;
        char *space = strchr(line, ' ');
        if (!space) {
            if (*line) damaged();
            continue;
        }
        *space = 0;
        read_line(program, line, space + 1);
    }
    if (!program->words.count || !program->seconds || !program->memory || !program->disk) damaged();
}
