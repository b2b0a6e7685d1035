/* Is sudo for tests of `allocscope run`: with the setuid bit, it executes a program as root without asking, with an
 * environment and descriptors as sudo leaves them. With REFUSES it does not.
 *
 *     sudo -- PROGRAM ARGUMENT...
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char uid[32], gid[32];

	snprintf(uid, sizeof(uid), "%d", getuid());
	snprintf(gid, sizeof(gid), "%d", getgid());
	if (argc < 3 || strcmp(argv[1], "--"))
		return 1;
#ifdef REFUSES
	fprintf(stderr, "sudo: not in the sudoers file\n");
	return 1;
#endif
	closefrom(3);
	clearenv();
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("SUDO_UID", uid, 1);
	setenv("SUDO_GID", gid, 1);
	if (setgid(0) || setuid(0))
		return 1;
	execv(argv[2], argv + 2);
	return 1;
}
