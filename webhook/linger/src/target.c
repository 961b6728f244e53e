#include "linger.h"

#include <string.h>

static const char http_scheme[] = "http://";

static bool is_port(const char *text)
{
    unsigned number = 0;

    if (*text < '1' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9' && number <= UINT16_MAX; text++)
        number = number * 10 + (unsigned)(*text - '0');
    return *text == '\0' && number <= UINT16_MAX;
}

/* Copies the text from `begin` to `end`, if it is not empty and fits with its final zero. */
static bool copy(const char *begin, const char *end, char *to, size_t size)
{
    size_t length = (size_t)(end - begin);

    if (length == 0 || length >= size)
        return false;
    memcpy(to, begin, length);
    to[length] = '\0';
    return true;
}

/* Splits HOST, HOST:PORT, [IPV6] or [IPV6]:PORT. The port stays unchanged if there is none. */
static bool split_authority(const char *begin, const char *end, struct target *target)
{
    const char *host_end = begin;

    if (*begin == '[') {
        begin++;
        while (host_end < end && *host_end != ']')
            host_end++;
        if (host_end == end || !copy(begin, host_end++, target->host, sizeof target->host))
            return false;
    } else {
        while (host_end < end && *host_end != ':')
            host_end++;
        if (!copy(begin, host_end, target->host, sizeof target->host))
            return false;
    }
    if (host_end == end)
        return true;
    return *host_end == ':' && copy(host_end + 1, end, target->port, sizeof target->port) &&
           is_port(target->port);
}

static bool is_printable(const char *text)
{
    while (*text > ' ' && *text <= '~')
        text++;
    return *text == '\0';
}

bool parse_target(enum target_kind kind, const char *text, struct target *target)
{
    *target = (struct target){.kind = kind, .text = text};
    size_t length = strlen(text);
    /* Anything else could add lines to the log or to the request. */
    if (length > MAX_TARGET_LENGTH || !is_printable(text))
        return false;
    switch (kind) {
    case TARGET_TCP:
        return split_authority(text, text + length, target) && *target->port;
    case TARGET_DNS:
        return copy(text, text + length, target->host, sizeof target->host);
    case TARGET_HTTP:
        break;
    }
    if (strncmp(text, http_scheme, sizeof http_scheme - 1) != 0)
        return false;
    target->authority = text + sizeof http_scheme - 1;
    target->authority_length = strcspn(target->authority, "/?#");
    memcpy(target->port, "80", sizeof "80");
    const char *path = target->authority + target->authority_length;
    return (*path == '\0' || *path == '/') &&
           split_authority(target->authority, path, target);
}
