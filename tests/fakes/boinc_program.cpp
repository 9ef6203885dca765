// A program that is made for BOINC's API: counts up to its first argument and adds what it counts,
// times the number in factor.txt.  It saves each step, and waits in the middle of its way for the
// file that its second argument names.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include "boinc_api.h"
#include "diagnostics.h"
#include "util.h"

static std::string resolved(const char* name) {
    std::string path;
    if (boinc_resolve_filename_s(name, path)) boinc_finish(2);
    return path;
}

static void save(int step, long sum) {
    FILE* file = fopen("state.part", "w");
    if (!file) boinc_finish(3);
    fprintf(file, "%d %ld\n", step, sum);
    fclose(file);
    rename("state.part", "state");
    boinc_checkpoint_completed();
}

static void tell(int step) {
    std::string text = "began at " + std::to_string(step) + "\n";
    fprintf(stderr, "stderr: %s", text.c_str());
    FILE* trace = fopen(resolved("trace.txt").c_str(), "a");
    fputs(text.c_str(), trace);
    fclose(trace);
    std::string variety = "note";
    boinc_send_trickle_up(&variety[0], &text[0]);
}

int main(int argc, char** argv) {
    BOINC_OPTIONS options;
    boinc_options_defaults(options);
    boinc_init_diagnostics(BOINC_DIAG_REDIRECTSTDERR);
    boinc_init_options(&options);

    APP_INIT_DATA facts;
    if (boinc_get_init_data(facts) || argc < 3) boinc_finish(4);
    int steps = atoi(argv[1]), step = 0, factor = 0;
    long sum = 0;
    FILE* input = fopen(resolved("factor.txt").c_str(), "r");
    if (!input || fscanf(input, "%d", &factor) != 1) boinc_finish(5);
    fclose(input);
    if (FILE* state = fopen("state", "r")) {
        if (fscanf(state, "%d %ld", &step, &sum) != 2) step = 0, sum = 0;
        fclose(state);
    }
    tell(step);
    while (step < steps) {
        while (step == steps / 2 && access(argv[2], F_OK)) boinc_sleep(0.1);
        sum += long(step) * factor;
        step++;
        boinc_fraction_done(double(step) / steps);
        save(step, sum);
    }
    FILE* output = fopen(resolved("sum.txt").c_str(), "w");
    fprintf(output, "%ld %s\n", sum, facts.app_name);
    fclose(output);
    boinc_finish(0);
}
