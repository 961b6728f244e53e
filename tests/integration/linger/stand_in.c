/* A replacement for an image's program. It prints its working directory and its arguments. STAND_IN
 * is its exit code, or `wait`: it then waits for SIGTERM and exits with 43. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void end(int number)
{
    (void)number;
    _exit(43);
}

int main(int argc, char **argv)
{
    const char *how = getenv("STAND_IN");
    char directory[4096];

    if (!how || !getcwd(directory, sizeof directory))
        return 125;
    printf("%d in %s\n", argc, directory);
    for (int i = 0; i < argc; i++)
        printf("%zu %s\n", strlen(argv[i]), argv[i]);
    if (strcmp(how, "wait") == 0) {
        signal(SIGTERM, end);
        puts("ready");
        fflush(stdout);
        for (;;)
            pause();
    }
    fflush(stdout);
    return atoi(how);
}
