/* Is sudo for tests of `allocscope run`: with the setuid bit, it executes a program as root, with an environment and
 * descriptors as sudo leaves them. It knows the password. With REFUSES it does not. Its ticket, a
 * file beside it, lets
 * calls with -n go on: a call without -k leaves one.
 *
 *     sudo [-k] [-n] -- PROGRAM ARGUMENT...
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char ticket[4096];

static void find_ticket(void)
{
	ssize_t length = readlink("/proc/self/exe", ticket, sizeof(ticket) - sizeof(".ticket"));

	if (length < 0)
		exit(1);
	strcpy(ticket + length, ".ticket");
}

int main(int argc, char **argv)
{
	char uid[32], gid[32];
	int i, ignores_ticket = 0, is_silent = 0;

	for (i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "-k"))
			ignores_ticket = 1;
		else if (!strcmp(argv[i], "-n"))
			is_silent = 1;
		else
			return 1;
	}
	argv += i + 1;
	if (i + 1 >= argc)
		return 1;

	snprintf(uid, sizeof(uid), "%d", getuid());
	snprintf(gid, sizeof(gid), "%d", getgid());
#ifdef REFUSES
	fprintf(stderr, "sudo: not in the sudoers file\n");
	return 1;
#endif
	find_ticket();
	if (is_silent && (ignores_ticket || access(ticket, F_OK))) {
		fprintf(stderr, "sudo: a password is required\n");
		return 1;
	}
	if (!ignores_ticket)
		close(open(ticket, O_CREAT | O_WRONLY, 0600));

	closefrom(3);
	clearenv();
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("SUDO_UID", uid, 1);
	setenv("SUDO_GID", gid, 1);
	if (setgid(0) || setuid(0))
		return 1;
	execvp(argv[0], argv);
	return 1;
}
