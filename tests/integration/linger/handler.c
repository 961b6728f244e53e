/*
 * Handles the signal that its argument names, whatever was inherited, and exits with 40 plus its
 * number. A server such as nginx (QUIT) or PostgreSQL (INT) does the same.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void handle(int number)
{
    _exit(40 + number);
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = handle};

    if (argc != 2 || sigaction(atoi(argv[1]), &action, NULL) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
