/* What the parts of the shim for Windows share.  `main.c` says what it is for. */

#define _WIN32_WINNT 0x0602
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_OUTPUTS = 256,
    MAX_DEPTH = 100,       /* of directories below work */
    MAX_NAME = 512,        /* bytes of a file's name */
    TICK_MS = 2000,        /* between two looks of the watch */
    EXIT_CHILD_FAILED = 195, /* and those of BOINC's client for limits */
    EXIT_DISK_LIMIT = 196,
    EXIT_TIME_LIMIT = 197,
    EXIT_MEMORY_LIMIT = 198,
};

typedef unsigned long long bytes_t;

/* Strings that grow; they are never freed, a shim runs one job. */
typedef struct {
    char **items;
    int count;
} List;

/* --- program.c: what may be run, as it is signed --------------------------------------- */

typedef struct {
    bytes_t seconds, memory, disk, output;
    List types, names;   /* of the values, in the order of the command line */
    List kinds, inputs;  /* of the signed inputs: file or program */
    List words;          /* of the command: parts, a letter before each */
    List picks;          /* outputs: a kind and a name or pattern */
    char *single;        /* the one that is uploaded as it is, or NULL */
} Program;

void read_program(Program *program);
char *decode(const char *word);
char *take(const char *type, const char *name, const char *word);
int is_digits(const char *text);
char *fill(const char *parts, const List *values);

/* --- files.c: the slot and what lies in it ----------------------------------------------- */

void find_slot(void);
wchar_t *slot_path(const char *name);
wchar_t *plain_path(const char *name);
char *narrow(const wchar_t *text);
wchar_t *wide(const char *text);
int is_safe_name(const char *name);
int is_file(const char *name);
int is_own_file(const char *name);
int exists(const char *name);
bytes_t size_of(const char *name);
bytes_t tree_size(const char *name);
void clean(void);
int make_parents(const char *name);
int move_file(const char *from, const char *to);
int write_text(const char *name, const char *text, int append);
char *read_text(const char *name, size_t most);
FILE *open_file(const char *name, const wchar_t *mode);
int copy_into(FILE *out, const char *name);
void find_matches(const char *pattern, List *found);

/* --- process.c: the command, its job object and the watch over both ------------------------ */

extern char exit_text[16];

void run_command(const Program *program, const List *words);
const char *why_ended(void);
DWORD exit_code(void);
void cpu_times(double *user, double *system);

/* --- client.c: messages from and to BOINC's client ------------------------------------------- */

typedef enum { NOTHING, SUSPEND, RESUME, QUIT } Message;

void find_client(void);
int is_client_gone(void);
Message hear(void);
void tell_progress(void);

/* --- main.c --------------------------------------------------------------------------------------- */

__attribute__((noreturn)) void fail(const char *reason, int code, const char *format, ...);
__attribute__((noreturn)) void no_room(const char *text);
__attribute__((noreturn)) void leave(void);

void add(List *list, char *item);
int has(const List *list, const char *item);
char *format_text(const char *format, ...);
