/*
 * Waits until the kubelet has a serving certificate, which is when the API server can fetch logs
 * from it. A kubelet that asks the cluster for its certificate listens before it gets one, and
 * refuses each handshake with the alert internal_error until then (kubernetes pkg/kubelet/kubelet.go,
 * GetCertificate). So a ServerHello is the answer that is waited for: Go's crypto/tls and OpenSSL
 * look for the certificate before they send one. Nothing is verified, nothing secret is sent, and
 * the handshake goes no further.
 */
#include "linger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MILLISECOND 1000000LL

static const nanoseconds first_pause = 100 * MILLISECOND;
static const nanoseconds longest_pause = 1000 * MILLISECOND;
static const nanoseconds longest_attempt = 5 * NANOSECONDS_PER_SECOND;
/* What a last attempt before the time is up may take. */
static const nanoseconds last_attempt = 100 * MILLISECOND;

enum {
    RECORD_HEADER = 5,
    RECORD_ALERT = 21,
    RECORD_HANDSHAKE = 22,
    MESSAGE_SERVER_HELLO = 2,
    ALERT_INTERNAL_ERROR = 80,
};

#define U16(n) (unsigned char)((n) >> 8), (unsigned char)((n) & 0xff)

/*
 * A ClientHello for TLS 1.2 and 1.3 (RFC 8446, section 4.1.2). Every group that it offers comes with
 * a key share. Without one the server would ask for it in a HelloRetryRequest, which looks like a
 * ServerHello and which Go sends before it looks for the certificate. The shares are the groups'
 * base points: valid, and nothing is ever encrypted with them. P-256 is for servers in FIPS mode.
 */
#define RANDOM                                                                                     \
    'p', 'o', 'd', 's', 'e', 't', 't', 'l', 'e', ' ', 'w', 'a', 'i', 't', 's', ' ', 'f', 'o', 'r', \
        ' ', 't', 'h', 'e', ' ', 'k', 'u', 'b', 'e', 'l', 'e', 't', '.'
#define X25519_BASE_POINT 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
                          0, 0, 0, 0, 0, 0, 0, 0
#define P256_BASE_POINT                                                                           \
    4, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40,  \
        0xf2, 0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, \
        0xc2, 0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, \
        0x0f, 0x9e, 0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, \
        0x37, 0xbf, 0x51, 0xf5

enum {
    CIPHER_SUITES = 2 * 14,
    GROUPS = 2 * 2,
    SIGNATURES = 2 * 12,
    X25519_SHARE = 4 + 32,
    P256_SHARE = 4 + 65,
    SHARES = X25519_SHARE + P256_SHARE,
    EXTENSIONS = 4 + 2 + GROUPS       /* supported_groups */
                 + 4 + 2              /* ec_point_formats */
                 + 4 + 2 + SIGNATURES /* signature_algorithms */
                 + 4                  /* extended_master_secret */
                 + 4 + 1 + 4          /* supported_versions */
                 + 4 + 2 + SHARES,    /* key_share */
    HELLO = 2 + 32 + 1 + 2 + CIPHER_SUITES + 2 + 2 + EXTENSIONS,
};

static const unsigned char client_hello[] = {
    RECORD_HANDSHAKE, U16(0x0301), U16(4 + HELLO), /* a first record says TLS 1.0 */
    1, 0, U16(HELLO),
    U16(0x0303), RANDOM, 0,
    U16(CIPHER_SUITES),
    U16(0x1301), U16(0x1302), U16(0x1303), /* TLS 1.3 */
    U16(0xc02b), U16(0xc02f), U16(0xc02c), U16(0xc030), /* ECDHE, AES-GCM */
    U16(0xcca9), U16(0xcca8),                           /* ECDHE, ChaCha20 */
    U16(0xc009), U16(0xc013), U16(0xc00a), U16(0xc014), /* ECDHE, AES-CBC */
    U16(0x00ff), /* renegotiation_info, which some servers demand (RFC 5746) */
    1, 0, /* no compression */
    U16(EXTENSIONS),
    U16(10), U16(2 + GROUPS), U16(GROUPS), U16(0x001d), U16(0x0017),
    U16(11), U16(2), 1, 0,
    U16(13), U16(2 + SIGNATURES), U16(SIGNATURES),
    U16(0x0403), U16(0x0503), U16(0x0603), U16(0x0807), /* ECDSA, Ed25519 */
    U16(0x0804), U16(0x0805), U16(0x0806), U16(0x0809), U16(0x080a), /* RSA-PSS */
    U16(0x0401), U16(0x0501), U16(0x0601), /* RSA */
    U16(23), U16(0), /* servers in FIPS mode demand it for TLS 1.2 (RFC 7627) */
    U16(43), U16(1 + 4), 4, U16(0x0304), U16(0x0303),
    U16(51), U16(2 + SHARES), U16(SHARES),
    U16(0x001d), U16(32), X25519_BASE_POINT,
    U16(0x0017), U16(65), P256_BASE_POINT,
};

_Static_assert(sizeof client_hello == RECORD_HEADER + 4 + HELLO, "the lengths add up");

/* What became of one attempt; where the kubelet is not ready, why not, in words for after its name. */
struct attempt {
    enum { NOT_YET, NEVER, READY } outcome;
    const char *problem;
    const char *detail;
};

static struct attempt failed(const char *problem, const char *detail)
{
    return (struct attempt){.problem = problem, .detail = detail};
}

static struct attempt refused(unsigned char alert)
{
    static char number[4];
    char *digit = number + sizeof number - 1;

    if (alert == ALERT_INTERNAL_ERROR)
        return failed("has no serving certificate yet (TLS alert 80)", "");
    do
        *--digit = (char)('0' + alert % 10);
    while ((alert /= 10) != 0);
    /* It wants other versions, ciphers or groups: it will not answer the same question otherwise. */
    return (struct attempt){NEVER, "refuses the handshake with TLS alert ", digit};
}

static nanoseconds earlier(nanoseconds one, nanoseconds other)
{
    return one < other ? one : other;
}

/* Milliseconds for poll(), rounded up: rounded down it would spin through the last one. */
static int milliseconds_to(nanoseconds until)
{
    nanoseconds left = until - monotonic_now();

    return left <= 0 ? 0 : (int)(earlier(left, NANOSECONDS_PER_SECOND) / MILLISECOND + 1);
}

/* Waits for events on a socket, or just waits if that is -1. False once `until` has passed. */
static bool await(int fd, short events, nanoseconds until)
{
    struct pollfd waiting = {.fd = fd, .events = events};

    for (;;) {
        int wait = milliseconds_to(until);
        if (wait == 0)
            return false;
        if (poll(&waiting, 1, wait) > 0)
            return true;
    }
}

static struct attempt read_answer(int fd, nanoseconds until)
{
    unsigned char answer[RECORD_HEADER + 2];
    size_t held = 0;

    while (held < sizeof answer) {
        if (!await(fd, POLLIN, until))
            return failed("does not answer", "");
        ssize_t n = recv(fd, answer + held, sizeof answer - held, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return failed("breaks off: ", strerror(errno));
        if (n == 0)
            return failed("closes the connection", "");
        held += (size_t)n;
    }
    if (answer[0] == RECORD_HANDSHAKE && answer[1] == 3 &&
        answer[RECORD_HEADER] == MESSAGE_SERVER_HELLO)
        return (struct attempt){.outcome = READY};
    if (answer[0] == RECORD_ALERT && answer[1] == 3)
        return refused(answer[RECORD_HEADER + 1]);
    return failed("does not speak TLS", "");
}

static struct attempt shake_hands(int fd, const struct endpoint *kubelet, nanoseconds until)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (connect(fd, &kubelet->address.any, kubelet->length) != 0) {
        if (errno != EINPROGRESS)
            return failed("cannot be reached: ", strerror(errno));
        if (!await(fd, POLLOUT, until))
            return failed("cannot be reached: ", strerror(ETIMEDOUT));
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0)
            return failed("cannot be reached: ", strerror(error));
    }
    /* It fits into the buffer of a socket that is new, so it is sent in one piece. */
    if (send(fd, client_hello, sizeof client_hello, MSG_NOSIGNAL) < 0)
        return failed("breaks off: ", strerror(errno));
    return read_answer(fd, until);
}

static struct attempt attempt(const struct endpoint *kubelet, nanoseconds until)
{
    int fd = socket(kubelet->address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return failed("cannot be asked: ", strerror(errno));

    struct attempt made = shake_hands(fd, kubelet, until);
    close(fd);
    return made;
}

/* PID 1 ignores what it does not handle, and a pod that is being deleted should not be held up. */
static void leave(int signal)
{
    (void)signal;
    _exit(0);
}

static void leave_when_told_to(void)
{
    const struct sigaction action = {.sa_handler = leave};

    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGQUIT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

bool parse_endpoint(const char *host, uint16_t port, struct endpoint *endpoint)
{
    *endpoint = (struct endpoint){0};
    if (inet_pton(AF_INET, host, &endpoint->address.v4.sin_addr) == 1) {
        endpoint->address.v4.sin_family = AF_INET;
        endpoint->address.v4.sin_port = htons(port);
        endpoint->length = sizeof endpoint->address.v4;
        return true;
    }
    if (inet_pton(AF_INET6, host, &endpoint->address.v6.sin6_addr) == 1) {
        endpoint->address.v6.sin6_family = AF_INET6;
        endpoint->address.v6.sin6_port = htons(port);
        endpoint->length = sizeof endpoint->address.v6;
        return true;
    }
    return false;
}

void wait_kubelet(const struct endpoint *kubelet, const char *host, nanoseconds timeout)
{
    nanoseconds until = monotonic_now() + timeout;
    nanoseconds pause = first_pause;

    leave_when_told_to();
    for (;;) {
        nanoseconds now = monotonic_now();
        struct attempt made = attempt(kubelet, earlier(until, now + longest_attempt));
        if (made.outcome == READY) {
            COMPLAIN("the kubelet at ", host, " is ready: it begins a TLS handshake");
            return;
        }
        if (made.outcome == NEVER) {
            COMPLAIN("not waiting: the kubelet at ", host, " ", made.problem, made.detail);
            return;
        }
        nanoseconds last = until - last_attempt;
        now = monotonic_now();
        if (now >= last) {
            COMPLAIN("time is up: the kubelet at ", host, " ", made.problem, made.detail,
                     "; going on without it");
            return;
        }
        await(-1, 0, earlier(now + pause, last));
        pause = earlier(2 * pause, longest_pause);
    }
}
