/* A replacement for an image's program. It prints its working directory and its arguments, and ends
 * with the exit code in STAND_IN. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *code = getenv("STAND_IN");
    char directory[4096];

    if (!code || !getcwd(directory, sizeof directory))
        return 125;
    printf("%d in %s\n", argc, directory);
    for (int i = 0; i < argc; i++)
        printf("%zu %s\n", strlen(argv[i]), argv[i]);
    fflush(stdout);
    return atoi(code);
}
