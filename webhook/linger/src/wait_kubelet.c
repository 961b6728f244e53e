/*
 * Waits until the kubelet has a serving certificate. Only then can the API server fetch logs.
 *
 * A kubelet that requests its certificate from the cluster listens before it gets one. Until then,
 * it rejects each handshake with the alert internal_error (kubernetes pkg/kubelet/kubelet.go,
 * GetCertificate). So linger waits for a ServerHello: Go's crypto/tls and OpenSSL send it only if
 * they have a certificate. linger then closes the connection. linger verifies no certificate and sends
 * no secret.
 */
#include "linger.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    RECORD_HEADER = 5,
    RECORD_ALERT = 21,
    RECORD_HANDSHAKE = 22,
    MESSAGE_SERVER_HELLO = 2,
    ALERT_INTERNAL_ERROR = 80,
};

#define U16(n) (unsigned char)((n) >> 8), (unsigned char)((n) & 0xff)

/*
 * A ClientHello for TLS 1.2 and 1.3 (RFC 8446, section 4.1.2).
 *
 * It contains a key share for every group that it offers. If a key share is missing, a server sends
 * a HelloRetryRequest. This message has the format of a ServerHello, and Go sends it before it checks for a
 * certificate. The key shares are the groups' base points, which are valid and need not be secret:
 * linger never encrypts anything. P-256 is for servers in FIPS mode.
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
    SIGNATURES = 2 * 15,
    X25519_KEY_SHARE = 4 + 32,
    P256_KEY_SHARE = 4 + 65,
    KEY_SHARES = X25519_KEY_SHARE + P256_KEY_SHARE,
    EXTENSIONS = 4 + 2 + GROUPS       /* supported_groups */
                 + 4 + 2              /* ec_point_formats */
                 + 4 + 2 + SIGNATURES /* signature_algorithms */
                 + 4                  /* extended_master_secret */
                 + 4 + 1 + 4          /* supported_versions */
                 + 4 + 2 + KEY_SHARES,    /* key_share */
    CLIENT_HELLO_BODY = 2 + 32 + 1 + 2 + CIPHER_SUITES + 2 + 2 + EXTENSIONS,
};

static const unsigned char client_hello[] = {
    /* The version in a first record is TLS 1.0. */
    RECORD_HANDSHAKE, U16(0x0301), U16(4 + CLIENT_HELLO_BODY),
    1, 0, U16(CLIENT_HELLO_BODY),
    U16(0x0303), RANDOM, 0,
    U16(CIPHER_SUITES),
    U16(0x1301), U16(0x1302), U16(0x1303), /* TLS 1.3 */
    U16(0xc02b), U16(0xc02f), U16(0xc02c), U16(0xc030), /* ECDHE, AES-GCM */
    U16(0xcca9), U16(0xcca8),                           /* ECDHE, ChaCha20 */
    U16(0xc009), U16(0xc013), U16(0xc00a), U16(0xc014), /* ECDHE, AES-CBC */
    U16(0x00ff), /* renegotiation_info, which some servers require (RFC 5746) */
    1, 0, /* no compression */
    U16(EXTENSIONS),
    U16(10), U16(2 + GROUPS), U16(GROUPS), U16(0x001d), U16(0x0017),
    U16(11), U16(2), 1, 0,
    U16(13), U16(2 + SIGNATURES), U16(SIGNATURES),
    U16(0x0403), U16(0x0503), U16(0x0603), U16(0x0807), /* ECDSA, Ed25519 */
    U16(0x0804), U16(0x0805), U16(0x0806), U16(0x0809), U16(0x080a), /* RSA-PSS */
    U16(0x0401), U16(0x0501), U16(0x0601), /* RSA */
    U16(0x0904), U16(0x0905), U16(0x0906), /* ML-DSA, which kubelets from 1.38 on can use */
    U16(23), U16(0), /* servers in FIPS mode require it for TLS 1.2 (RFC 7627) */
    U16(43), U16(1 + 4), 4, U16(0x0304), U16(0x0303),
    U16(51), U16(2 + KEY_SHARES), U16(KEY_SHARES),
    U16(0x001d), U16(32), X25519_BASE_POINT,
    U16(0x0017), U16(65), P256_BASE_POINT,
};

_Static_assert(sizeof client_hello == RECORD_HEADER + 4 + CLIENT_HELLO_BODY, "the lengths add up");

static struct attempt alert_result(unsigned char alert)
{
    static char number[4];
    char *digit = number + sizeof number - 1;

    if (alert == ALERT_INTERNAL_ERROR)
        return retryable("has no serving certificate yet (TLS alert 80)", "");
    do
        *--digit = (char)('0' + alert % 10);
    while ((alert /= 10) != 0);
    /* The kubelet requires other versions, ciphers or groups. Another attempt would fail, too. */
    return (struct attempt){GIVE_UP, "refuses the handshake with TLS alert ", digit};
}

static struct attempt begin_handshake(int fd, nanoseconds until)
{
    unsigned char answer[RECORD_HEADER + 2];
    struct attempt attempt =
        exchange(fd, client_hello, sizeof client_hello, answer, sizeof answer, until);

    if (attempt.outcome != READY)
        return attempt;
    if (answer[0] == RECORD_HANDSHAKE && answer[1] == 3 &&
        answer[RECORD_HEADER] == MESSAGE_SERVER_HELLO)
        return attempt;
    if (answer[0] == RECORD_ALERT && answer[1] == 3)
        return alert_result(answer[RECORD_HEADER + 1]);
    return retryable("does not speak TLS", "");
}

static struct attempt attempt_handshake(const void *target, nanoseconds until)
{
    const struct endpoint *kubelet = target;
    struct attempt attempt;

    until = end_of_attempt(until);
    int fd = connect_until(&kubelet->address.any, kubelet->length, until, &attempt);
    if (fd < 0)
        return attempt;
    attempt = begin_handshake(fd, until);
    close(fd);
    return attempt;
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
    struct attempt last = repeat_until(attempt_handshake, kubelet, monotonic_now() + timeout);

    if (last.outcome == READY)
        LOG("the kubelet at ", host, " is ready: it begins a TLS handshake");
    else if (last.outcome == GIVE_UP)
        LOG("not waiting: the kubelet at ", host, " ", last.problem, last.detail);
    else
        LOG("timeout: the kubelet at ", host, " ", last.problem, last.detail,
            "; continuing without it");
}
