/*
 * Handles the signal whose number is the argument, also if the signal is ignored at the start, and
 * exits with 40 plus its number. Servers such as nginx (QUIT) and PostgreSQL (INT) handle signals
 * in the same way.
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
