/* Prints the environment that a program gets from its parent: it must be the same below `allocscope
 * run`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static void print_lines(const char *path, const char *prefix)
{
	char line[4096];
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, prefix, strlen(prefix)))
			printf("%s: %s", path, line);
	if (file)
		fclose(file);
}

static void print_descriptors(void)
{
	for (int fd = 0; fd < 1024; fd++) {
		char path[64], target[4096];
		ssize_t size;

		if (fcntl(fd, F_GETFD) < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		size = readlink(path, target, sizeof(target));
		printf("fd %d: %.*s, flags %x, descriptor flags %x, at %ld\n", fd, (int)(size > 0 ? size : 0), target,
		       fcntl(fd, F_GETFL), fcntl(fd, F_GETFD), (long)lseek(fd, 0, SEEK_CUR));
	}
}

int main(int argc, char **argv)
{
	gid_t groups[256];
	cpu_set_t cpus;
	char folder[4096];
	int terminal = open("/dev/tty", O_RDWR);
	mode_t mask = umask(0);
	struct rlimit limit;

	for (int i = 0; i < argc; i++)
		printf("argument %s\n", argv[i]);
	for (char **entry = environ; *entry; entry++)
		printf("environment %s\n", *entry);

	printf("folder %s, umask %o\n", getcwd(folder, sizeof(folder)), mask);
	printf("user %d %d, group %d %d\n", getuid(), geteuid(), getgid(), getegid());
	for (int i = 0, n = getgroups(256, groups); i < n; i++)
		printf("group %d\n", groups[i]);

	printf("process group %d, session %d, foreground %d\n", getpgrp(), getsid(0),
	       terminal < 0 ? -errno : tcgetpgrp(terminal));
	if (terminal >= 0)
		close(terminal);
	printf("nice %d\n", getpriority(PRIO_PROCESS, 0));
	for (int i = 0; i < RLIM_NLIMITS; i++)
		if (!getrlimit(i, &limit))
			printf("limit %d: %lx %lx\n", i, (long)limit.rlim_cur, (long)limit.rlim_max);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	printf("%d CPUs, policy %d\n", CPU_COUNT(&cpus), sched_getscheduler(0));
	printf("dumpable %d, timer slack %d, secure bits %d\n", prctl(PR_GET_DUMPABLE), prctl(PR_GET_TIMERSLACK),
	       prctl(PR_GET_SECUREBITS));

	print_lines("/proc/self/status", "Sig");
	print_lines("/proc/self/status", "Shd");
	print_lines("/proc/self/status", "Cap");
	print_lines("/proc/self/status", "NoNewPrivs");
	print_lines("/proc/self/status", "Seccomp");
	print_lines("/proc/self/oom_score_adj", "");
	print_lines("/proc/self/cgroup", "");
	print_lines("/proc/self/personality", "");
	print_descriptors();
	return 0;
}
