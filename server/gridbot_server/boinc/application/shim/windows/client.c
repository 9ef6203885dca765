/* What BOINC's client says and hears: kilobytes of shared memory, each with a flag and a text.
 *
 * The first is what the client tells programs; the receiver clears the flag.  The sixth is what
 * programs tell the client.  The memory's name and the client's process stand in init_data.xml.
 */

#include "shim.h"

enum { CHANNEL = 1024, STATUS = 5 * CHANNEL };

static char *shared;
static HANDLE client;
static char last_told[64];

/* The text of an element, of letters, digits and _; NULL where there is none. */
static char *element(const char *text, const char *name) {
    char *tag = format_text("<%s>", name), *found = strstr(text, tag);
    if (!found) return NULL;
    found = format_text("%s", found + strlen(tag));
    size_t size = strspn(found, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    int is_whole = size && size < 100 && found[size] == '<';
    found[size] = 0;
    return is_whole ? found : NULL;
}

static char *map_memory(const char *name) {
    HANDLE memory = OpenFileMappingA(FILE_MAP_ALL_ACCESS, FALSE, format_text("Global\\shm_%s", name));
    if (!memory) memory = OpenFileMappingA(FILE_MAP_ALL_ACCESS, FALSE, format_text("shm_%s", name));
    return memory ? MapViewOfFile(memory, FILE_MAP_ALL_ACCESS, 0, 0, STATUS + CHANNEL) : NULL;
}

void find_client(void) {
    char *facts = read_text("init_data.xml", 1 << 20);
    if (!facts) return;
    char *memory = element(facts, "comm_obj_name"), *process = element(facts, "client_pid");
    if (memory) shared = map_memory(memory);
    if (process && is_digits(process)) client = OpenProcess(SYNCHRONIZE, FALSE, atoi(process));
}

int is_client_gone(void) { return client && WaitForSingleObject(client, 0) == WAIT_OBJECT_0; }

Message hear(void) {
    if (!shared || !shared[0]) return NOTHING;
    char told[CHANNEL] = {0};
    memcpy(told, shared + 1, CHANNEL - 1);
    MemoryBarrier();
    shared[0] = 0;
    if (strstr(told, "<quit/>") || strstr(told, "<abort/>")) return QUIT;
    if (strstr(told, "<suspend/>")) return SUSPEND;
    return strstr(told, "<resume/>") ? RESUME : NOTHING;
}

/* From 0 to 1; 0 for nothing that is understood. */
static double read_progress(void) {
    if (!is_own_file("work/tmp/progress")) return 0;
    char *text = read_text("work/tmp/progress", 64), *end;
    if (!text) return 0;
    double part = strtod(text, &end);
    if (*end == '%') part /= 100, end++;
    int is_good = end > text && end[strspn(end, " \r\n")] == 0 && part > 0 && part <= 1;
    free(text);
    return is_good ? part : 0;
}

void tell_progress(void) {
    double part = shared ? read_progress() : 0;
    if (!part || shared[STATUS]) return;
    char text[64];
    snprintf(text, sizeof text, "<fraction_done>%.6f</fraction_done>", part);
    if (!strcmp(text, last_told)) return;
    memcpy(shared + STATUS + 1, text, sizeof text);
    MemoryBarrier();
    shared[STATUS] = 1;
    memcpy(last_told, text, sizeof text);
}
