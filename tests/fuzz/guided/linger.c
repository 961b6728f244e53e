/*
 * The parts of linger that read bytes of others, for libFuzzer. Define one of FUZZ_DURATION,
 * FUZZ_ARGUMENTS and FUZZ_KUBELET. With REPLAY, a main() runs each file that is named, without
 * libFuzzer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define main linger_main
#include "main.c"
#undef main
#include "clock.c"
#include "duration.c"
#include "message.c"
#include "open_files.c"
#include "attempts.c"
#include "target.c"
#include "wait_kubelet.c"

#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            fprintf(stderr, "%d: %s is false\n", __LINE__, #condition); \
            abort();                                                   \
        }                                                              \
    } while (0)

enum { RAN = 201, INSTALLED = 202, MAX_ARGUMENTS = 32, MAX_TEXT = 4096 };

/* These replace run.c, wait.c and install.c, which start processes and write files. */
int run(const struct run *request)
{
    CHECK(request->command && request->command[0]);
    CHECK(request->sleep >= 0 && request->sleep <= DURATION_MAX);
    CHECK(request->min_lifetime >= 0 && request->min_lifetime <= DURATION_MAX);
    return RAN;
}

void wait_for_targets(const struct wait *wait)
{
    CHECK(wait->count >= 0 && wait->count <= MAX_TARGETS);
    CHECK(wait->timeout >= 0 && wait->timeout <= DURATION_MAX);
    for (int i = 0; i < wait->count; i++) {
        const struct target *target = &wait->targets[i];
        CHECK(*target->host && strlen(target->text) <= MAX_TARGET_LENGTH);
        CHECK((target->kind == TARGET_DNS) == !*target->port);
        if (target->kind == TARGET_HTTP)
            CHECK(target->authority + target->authority_length <= strchr(target->text, '\0'));
    }
}

int install(const char *destination)
{
    CHECK(destination);
    return INSTALLED;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

#if defined FUZZ_DURATION
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char text[2 * MAX_TEXT + 1] = {0};
    nanoseconds once = -1, twice = -1;

    if (size > MAX_TEXT)
        return 0;
    memcpy(text, data, size);
    size_t length = strlen(text);
    if (!parse_duration(text, &once)) {
        CHECK(once == -1);
        return 0;
    }
    CHECK(once >= 0 && once <= DURATION_MAX);
    if (strcmp(text, "0") == 0)
        return 0;
    /* The terms of a duration are added, so a text that is written twice is twice as long. */
    memcpy(text + length, data, length);
    text[2 * length] = 0;
    CHECK(parse_duration(text, &twice) == (once <= DURATION_MAX / 2));
    CHECK(once > DURATION_MAX / 2 || twice == 2 * once);
    return 0;
}
#elif defined FUZZ_ARGUMENTS
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    /* The first text is HOST_IP. The others are the arguments. */
    char text[MAX_TEXT + 1] = {0};
    char name[] = "linger";
    char *arguments[MAX_ARGUMENTS + 2] = {name};
    int count = 1;

    if (size > MAX_TEXT)
        return 0;
    memcpy(text, data, size);
    setenv("HOST_IP", text, 1);
    for (size_t at = strlen(text) + 1; at < size && count <= MAX_ARGUMENTS;
         at += strlen(text + at) + 1)
        arguments[count++] = text + at;
    struct endpoint endpoint;
    /* Without an address, linger does not wait. */
    if (count > 1 && strcmp(arguments[1], "wait-kubelet") == 0 &&
        parse_endpoint(text, 1, &endpoint)) {
        CHECK(endpoint.length == sizeof endpoint.address.v4 ||
              endpoint.length == sizeof endpoint.address.v6);
        setenv("HOST_IP", "", 1);
    }
    int code = linger_main(count, arguments);
    CHECK(code == 0 || code == EXIT_BAD_USAGE || code == RAN || code == INSTALLED);
    return 0;
}
#elif defined FUZZ_KUBELET
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    int ends[2];

    if (size > MAX_TEXT || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 0;
    CHECK(send(ends[1], data, size, 0) == (ssize_t)size);
    /* This end stays open for what linger sends. */
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    struct attempt attempt =
        begin_handshake(ends[0], monotonic_now() + 60 * NANOSECONDS_PER_SECOND);
    close(ends[0]);
    close(ends[1]);
    bool is_complete = size >= RECORD_HEADER + 2;
    bool begins = is_complete && data[0] == RECORD_HANDSHAKE && data[1] == 3 &&
                  data[RECORD_HEADER] == MESSAGE_SERVER_HELLO;
    bool refuses = is_complete && data[0] == RECORD_ALERT && data[1] == 3 &&
                   data[RECORD_HEADER + 1] != ALERT_INTERNAL_ERROR;
    CHECK((attempt.outcome == READY) == begins);
    CHECK((attempt.outcome == GIVE_UP) == refuses);
    if (attempt.outcome != READY)
        CHECK(strlen(attempt.problem) > 0 && strlen(attempt.detail) < 200);
    if (refuses)
        CHECK(atoi(attempt.detail) == data[RECORD_HEADER + 1]);
    return 0;
}
#endif

#ifdef REPLAY
int main(int count, char **files)
{
    static unsigned char data[MAX_TEXT];

    for (int i = 1; i < count; i++) {
        FILE *file = fopen(files[i], "rb");
        CHECK(file);
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        /* In a block of its own size, so that a read behind its end is found. */
        unsigned char *copy = malloc(size ? size : 1);
        CHECK(copy);
        memcpy(copy, data, size);
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
    }
    return 0;
}
#endif
