/* Maps another file wherever a library is mapped, as an attacker does: the probes of a trace must not follow.
 *
 *     remap LIBRARY OTHER
 *
 * It prints "ready". At "remap" it maps OTHER over LIBRARY and prints "done". Both files have the
 * same contents, but the data that the dynamic linker has written into LIBRARY are gone: no
 * function of it is called any more. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct mapping {
	unsigned long start, end, offset;
	int protection;
};

static int read_mappings(const char *library, struct mapping *found, int most)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096], permissions[5];
	int n = 0;

	while (maps && n < most && fgets(line, sizeof(line), maps)) {
		struct mapping *m = &found[n];

		if (strstr(line, library) &&
		    sscanf(line, "%lx-%lx %4s %lx", &m->start, &m->end, permissions, &m->offset) == 4) {
			m->protection = (permissions[0] == 'r' ? PROT_READ : 0) |
					(permissions[1] == 'w' ? PROT_WRITE : 0) |
					(permissions[2] == 'x' ? PROT_EXEC : 0);
			n++;
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	struct mapping found[16];
	char line[16];
	int n, fd;

	if (argc < 3)
		return 2;
	n = read_mappings(argv[1], found, 16);
	fd = open(argv[2], O_RDONLY);
	puts("ready");
	fflush(stdout);
	if (read(0, line, sizeof(line)) <= 0)
		return 0;

	for (int i = 0; i < n; i++) {
		struct mapping *m = &found[i];

		if (mmap((void *)m->start, m->end - m->start, m->protection, MAP_PRIVATE | MAP_FIXED, fd,
			 (off_t)m->offset) == MAP_FAILED)
			_exit(1);
	}
	if (write(1, "done\n", 5) == 5)
		pause();
	_exit(1);
}
