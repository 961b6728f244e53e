/* The first process of a pod's sandbox: it sleeps until a signal ends it, and reaps orphans of a
   shared PID namespace. */

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal)
{
    (void)signal;
    _exit(0);
}

static void reap(int signal)
{
    (void)signal;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void)
{
    signal(SIGINT, end);
    signal(SIGTERM, end);
    signal(SIGCHLD, reap);
    for (;;) {
        pause();
    }
}
