#include "linger.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: linger [--sleep D] [--min-lifetime D] [--open-files N[:N]] -- CMD [ARG...]\n"
    "       linger install DEST\n"
    "       linger wait-kubelet [--timeout D] [--port N]\n"
    "       linger wait [--timeout D] [--tcp HOST:PORT] [--http URL] [--dns NAME] [--kubelet D]\n"
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
    "  --port N          the port of that kubelet (default 10250)\n"
    "  wait              wait until each target has answered once, or until the timeout\n"
    "                    (default 15s). Options of targets can be repeated. Exit with 0\n"
    "  --tcp HOST:PORT   accepts a connection\n"
    "  --http URL        answers a GET request with any status. URL begins with http://\n"
    "  --dns NAME        has an address\n"
    "  --kubelet D       wait for the kubelet too, as wait-kubelet with the timeout D\n\n"
    "D is a duration such as 500ms, 1.5s or 1m30s. If both delays are set, the longer one\n"
    "applies. SIGTERM, SIGINT, SIGQUIT and SIGHUP end the delay. If one of them arrives\n"
    "while CMD runs, there is no delay.\n\n"
    "Exit code: that of CMD; 128+N if signal N terminated CMD; 126 if CMD cannot be executed;\n"
    "127 if CMD was not found; 2 for wrong usage; 1 if install fails.";

static const nanoseconds default_kubelet_timeout = 30 * NANOSECONDS_PER_SECOND;
enum { DEFAULT_KUBELET_PORT = 10250 };

static const nanoseconds default_wait_timeout = 15 * NANOSECONDS_PER_SECOND;
/* More than a policy and an annotation of a pod can have together. Each has a process. */
enum { MAX_TARGETS = 16 };

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

/* Returns the kubelet's address as a text, and sets `kubelet`. Logs and returns NULL if there is no
 * address: linger then exits with 0, because its failure would fail the pod. */
static const char *kubelet_host(uint16_t port, struct endpoint *kubelet)
{
    const char *host = getenv("HOST_IP");

    if (host && parse_endpoint(host, port, kubelet))
        return host;
    LOG("not waiting for the kubelet: HOST_IP is not an address: ", host ? host : "");
    return NULL;
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
    const char *host = kubelet_host(port, &kubelet);
    exit_on_termination_signals();
    if (host)
        wait_kubelet(&kubelet, host, timeout);
    return 0;
}

/* The targets of `linger wait`. */
struct targets {
    struct target items[MAX_TARGETS];
    int count;
};

static void add_target(struct targets *targets, enum target_kind kind, const char *text)
{
    if (targets->count == MAX_TARGETS)
        LOG("ignored: too many targets: ", text);
    else if (parse_target(kind, text, &targets->items[targets->count]))
        targets->count++;
    else
        LOG("ignored: not a target: ", text);
}

/* Parses the options and waits for the targets. An argument that cannot be used is logged and
 * ignored, because an exit code other than 0 would fail the pod. */
static int parse_and_wait(char **arguments, nanoseconds started)
{
    struct targets targets = {.count = 0};
    struct endpoint kubelet;
    struct wait wait = {
        .started = started,
        .timeout = default_wait_timeout,
        .targets = targets.items,
    };
    enum { TCP = TARGET_TCP, HTTP = TARGET_HTTP, DNS = TARGET_DNS, TIMEOUT, KUBELET, OPTIONS };
    static const char *const names[OPTIONS] = {
        [TCP] = "--tcp",         [HTTP] = "--http",       [DNS] = "--dns",
        [TIMEOUT] = "--timeout", [KUBELET] = "--kubelet",
    };

    for (; *arguments; arguments++) {
        const char *rest = NULL;
        int option = 0;
        while (option < OPTIONS && !(rest = text_after_option(*arguments, names[option])))
            option++;
        if (!rest) {
            LOG("ignored: unknown argument ", *arguments);
            continue;
        }
        if (*rest == '\0' && !arguments[1]) {
            LOG("ignored: a value is missing after ", *arguments);
            break;
        }
        const char *value = *rest == '=' ? rest + 1 : *++arguments;
        nanoseconds duration;
        if (option < TIMEOUT) {
            add_target(&targets, (enum target_kind)option, value);
        } else if (!parse_duration(value, &duration)) {
            LOG("ignored: not a duration: ", value);
        } else if (option == TIMEOUT) {
            wait.timeout = duration;
        } else {
            wait.kubelet_timeout = duration;
            wait.kubelet_host = kubelet_host(DEFAULT_KUBELET_PORT, &kubelet);
            wait.kubelet = wait.kubelet_host ? &kubelet : NULL;
        }
    }
    wait.count = targets.count;
    wait_for_targets(&wait);
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
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        return parse_and_wait(argv + 2, request.started);
    /* argv may be empty, because execve() allows it. */
    return parse_and_run(argc > 0 ? argv + 1 : argv, &request);
}
