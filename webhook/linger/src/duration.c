#include "linger.h"

#include <stddef.h>
#include <string.h>

/* The order matters: parse_unit() must compare with "ms" before "m". */
static const struct unit {
    const char *name;
    nanoseconds length;
} units[] = {
    {"ns", 1},
    {"us", 1000},
    {"\xc2\xb5s", 1000}, /* U+00B5, the micro sign */
    {"\xce\xbcs", 1000}, /* U+03BC, the Greek letter mu */
    {"ms", 1000000},
    {"s", NANOSECONDS_PER_SECOND},
    {"m", 60 * NANOSECONDS_PER_SECOND},
    {"h", 3600 * NANOSECONDS_PER_SECOND},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the unit with which the text begins, and moves the text behind it. Returns NULL if the
 * text begins with no unit. */
static const struct unit *parse_unit(const char **text)
{
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t length = strlen(units[i].name);
        if (strncmp(*text, units[i].name, length) == 0) {
            *text += length;
            return &units[i];
        }
    }
    return NULL;
}

/* Parses one number with its unit, such as "1.5s", and adds it to the total. */
static bool parse_term(const char **text, nanoseconds *total)
{
    const char *whole = *text;
    const char *end = whole;
    while (is_digit(*end))
        end++;
    const char *whole_end = end;
    const char *fraction = end;
    if (*end == '.') {
        fraction = ++end;
        while (is_digit(*end))
            end++;
    }
    if (whole == whole_end && fraction == end)
        return false; /* no digit on either side of the point */

    *text = end;
    const struct unit *unit = parse_unit(text);
    if (!unit)
        return false;

    nanoseconds number = 0;
    for (; whole < whole_end; whole++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *whole - '0', &number))
            return false;
    if (__builtin_mul_overflow(number, unit->length, &number) ||
        __builtin_add_overflow(*total, number, total))
        return false;

    /* Each digit is added separately. So the result is exact for "0.5h", and a fraction of any length
     * does not overflow. */
    nanoseconds digit_value = unit->length;
    for (; fraction < end; fraction++) {
        digit_value /= 10;
        if (__builtin_add_overflow(*total, (*fraction - '0') * digit_value, total))
            return false;
    }
    return true;
}

bool parse_duration(const char *text, nanoseconds *duration)
{
    nanoseconds total = 0;

    if (strcmp(text, "0") != 0) {
        if (*text == '\0')
            return false;
        while (*text)
            if (!parse_term(&text, &total) || total > DURATION_MAX)
                return false;
    }
    *duration = total;
    return true;
}
