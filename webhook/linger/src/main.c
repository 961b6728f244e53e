#include "linger.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: linger [--sleep D] [--min-lifetime D] [--open-files N[:N]] -- CMD [ARG...]\n"
    "       linger install DEST\n"
    "       linger wait-kubelet [--timeout D] [--port N]\n"
    "       linger --version | --help";

static const char help[] =
    "\n\n"
    "Runs CMD as a child process, forwards signals to it and reaps orphans. Delays its own\n"
    "exit, so that the container runtime does not lose the exit code of a short container.\n\n"
    "  --sleep D         exit at least this long after the end of CMD (default 0)\n"
    "  --min-lifetime D  exit at least this long after the start of linger (default 0)\n"
    "  --open-files SOFT[:HARD]\n"
    "                    limit the files that CMD may open: lower the hard limit to HARD, and\n"
    "                    set the soft limit to SOFT, or to the hard limit if that is lower;\n"
    "                    without a delay, CMD replaces linger\n"
    "  install DEST      copy linger to the file DEST or into the directory DEST\n"
    "  wait-kubelet      wait until the kubelet at the address $HOST_IP has a serving\n"
    "                    certificate, or until the timeout (default 30s); exit with 0\n"
    "  --port N          the port of that kubelet (default 10250)\n\n"
    "D is a duration such as 500ms, 1.5s or 1m30s. If both delays are set, the longer one\n"
    "applies. SIGTERM, SIGINT, SIGQUIT and SIGHUP end the delay. If one of them arrives\n"
    "while CMD runs, there is no delay.\n\n"
    "Exit code: that of CMD; 128+N if signal N terminated CMD; 126 if CMD cannot be executed;\n"
    "127 if CMD was not found; 2 for wrong usage; 1 if install fails.";

static const nanoseconds default_kubelet_timeout = 30 * NANOSECONDS_PER_SECOND;
enum { DEFAULT_KUBELET_PORT = 10250 };

static int usage_error(const char *problem, const char *argument)
{
    LOG(problem, argument, "\n", usage);
    return EXIT_BAD_USAGE;
}

/* Returns the text after the option's name: "" or "=VALUE". Returns NULL for another option. */
static const char *text_after_option(const char *argument, const char *name)
{
    size_t length = strlen(name);

    if (strncmp(argument, name, length) != 0)
        return NULL;
    return argument[length] == '\0' || argument[length] == '=' ? argument + length : NULL;
}

/* Parses the options and the command, runs the command, and returns the exit code for linger. */
static int parse_and_run(char **arguments, struct run *request)
{
    for (; *arguments; arguments++) {
        if (strcmp(*arguments, "--") == 0) {
            request->command = arguments + 1;
            if (!*request->command)
                return usage_error("a command is missing after ", "--");
            return run(request);
        }

        nanoseconds *duration = &request->sleep;
        const char *rest = text_after_option(*arguments, "--sleep");
        if (!rest) {
            duration = &request->min_lifetime;
            rest = text_after_option(*arguments, "--min-lifetime");
        }
        if (!rest) {
            duration = NULL;
            rest = text_after_option(*arguments, "--open-files");
        }
        if (!rest)
            return usage_error("unknown argument ", *arguments);
        if (*rest == '\0' && !arguments[1])
            return usage_error("a value is missing after ", *arguments);
        const char *value = *rest == '=' ? rest + 1 : *++arguments;
        if (duration && !parse_duration(value, duration))
            return usage_error("not a duration: ", value);
        if (!duration && !parse_open_files(value, &request->limits))
            return usage_error("not limits of open files: ", value);
    }
    return usage_error("a command is missing: ", "-- CMD");
}

static bool parse_port(const char *text, uint16_t *port)
{
    uint32_t number = 0;

    for (; *text >= '0' && *text <= '9' && number <= UINT16_MAX; text++)
        number = number * 10 + (uint32_t)(*text - '0');
    *port = (uint16_t)number;
    return *text == '\0' && number > 0 && number <= UINT16_MAX;
}

/* Parses the options, waits for the kubelet, and returns the exit code for linger. */
static int parse_and_wait_kubelet(char **arguments)
{
    nanoseconds timeout = default_kubelet_timeout;
    uint16_t port = DEFAULT_KUBELET_PORT;
    struct endpoint kubelet;

    for (; *arguments; arguments++) {
        bool is_port = false;
        const char *rest = text_after_option(*arguments, "--timeout");
        if (!rest) {
            is_port = true;
            rest = text_after_option(*arguments, "--port");
        }
        if (!rest)
            return usage_error("unknown argument ", *arguments);
        if (*rest == '\0' && !arguments[1])
            return usage_error("a value is missing after ", *arguments);
        const char *value = *rest == '=' ? rest + 1 : *++arguments;
        if (is_port && !parse_port(value, &port))
            return usage_error("not a port: ", value);
        if (!is_port && !parse_duration(value, &timeout))
            return usage_error("not a duration: ", value);
    }
    /* With a wrong address linger still exits with 0, because its failure would fail the pod. */
    const char *host = getenv("HOST_IP");
    if (host && parse_endpoint(host, port, &kubelet))
        wait_kubelet(&kubelet, host, timeout);
    else
        LOG("not waiting for the kubelet: HOST_IP is not an address: ", host ? host : "");
    return 0;
}

int main(int argc, char **argv)
{
    struct run request = {.started = monotonic_now()};

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        PRINT("linger " LINGER_VERSION);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        PRINT(usage, help);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "install") == 0) {
        if (argc != 3)
            return usage_error("install requires exactly one destination", "");
        return install(argv[2]);
    }
    if (argc > 1 && strcmp(argv[1], "wait-kubelet") == 0)
        return parse_and_wait_kubelet(argv + 2);
    /* argv may be empty, because execve() allows it. */
    return parse_and_run(argc > 0 ? argv + 1 : argv, &request);
}
