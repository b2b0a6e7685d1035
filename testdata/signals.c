/* Prints the name of each signal that it is sent, until SIGUSR2. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	static const int caught[] = { SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM };
	sigset_t set;
	int number;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(caught) / sizeof(*caught); i++)
		sigaddset(&set, caught[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready %d\n", getpid());
	while (!sigwait(&set, &number) && number != SIGUSR2)
		printf("SIG%s\n", sigabbrev_np(number));
	return 0;
}
