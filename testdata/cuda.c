/* Allocates through libcuda.so.1 on command, so that all objects are known at every moment. It
 * prints "ready", executes one order a line, prints the answer, then "done", and exits at the end
 * of its input. With a path as its argument it loads that library before. A failure ends it with a
 * line on stderr.
 *
 *     load PATH             dlopens libcuda.so.1; "missing NAME" for each function that it lacks
 *     map PATH              maps a file as code, whatever it is
 *     span N SIZE           span_here() makes N pieces of memory of SIZE bytes, maps them side by
 * side, and releases
 *                           their handles
 *     unspan FROM SIZE      one call undoes the mappings in that range of them
 *     resolve               from then on calls the results of cuGetProcAddress_v2(), per-thread
 * streams as well
 *     hold API N SIZE       hold_API() allocates N objects of SIZE bytes, and they stay
 *     free API N            the N oldest of that API are freed
 *     elsewhere API N       so they are in another thread, in freed_elsewhere()
 *     churn API N SIZE      churn_here() has hold_API() allocate and frees at once, N times
 *     threads T API N SIZE  T threads at once do "hold API N SIZE", from thread_here()
 *     reuse FROM TO N       N times, the oldest of FROM is freed and hold_TO() gets the same
 * size; "reused N" has
 *                           how many have the address that was free
 *     fail API N            hold_API() asks N times for 1 << 50 bytes, which fails
 *     refuse API N SIZE     hold_API() asks N times for SIZE bytes, and the library has it fail
 *     keep API N            N frees of the oldest of that API fail, and it stays
 *     wrong N               N times, frees an absent object by each function that frees, which
 * fails
 *     device D              cuMemCreate() makes memory of device D from then on (at first, 0)
 *     retain N              retained_here() gets a handle more of the N oldest of "segment";
 * those live on when freed
 *     release N             the N oldest of these handles are released
 *     touch API N           writes to each page of the N oldest of that API, which have to be of
 * the host
 *     overlap SIZE          overlap_here() gets memory of SIZE bytes from malloc(), writes to it,
 * and registers its
 *                           first three quarters and its last three quarters; "overlap" without a
 * size undoes it
 *     totals                "KIND OBJECTS BYTES" for each kind that the library knows, as the
 * library counts
 *     fork                  starts a child that has inherited everything; the child prints "child
 * PID", and "done"
 *     child ORDER           the child executes, and prints "done"; "child fork" is no order
 *     exec PROGRAM          executes another program, without arguments
 *
 * APIs, each with the bytes that the library counts for an object of SIZE bytes:
 *
 *     malloc       cuMemAlloc_v2                 device SIZE
 *     pitch        cuMemAllocPitch_v2            pitch 3 * SIZE, SIZE rounded up to a multiple of
 * 512: three rows
 *     managed      cuMemAllocManaged             managed SIZE
 *     async        cuMemAllocAsync               async SIZE
 *     async_ptsz   cuMemAllocAsync_ptsz          async SIZE
 *     pool         cuMemAllocFromPoolAsync       pool SIZE
 *     pool_ptsz    cuMemAllocFromPoolAsync_ptsz  pool SIZE
 *     create       cuMemCreate                   created SIZE; SIZE is a multiple of 2 MiB, as
 * for the next four
 *     create_host  cuMemCreate                   created_host SIZE; in memory of the host
 *     segment      cuMemCreate                   created SIZE, reserved SIZE, mapped SIZE, as
 * expandable segments
 *     lent         cuMemCreate                   the same, but the handle is released when the
 * memory is mapped
 *     import       cuMemCreate                   created SIZE, imported SIZE: the same memory,
 * exported and imported
 *     hostalloc    cuMemHostAlloc                pinned SIZE
 *     allochost    cuMemAllocHost_v2             pinned SIZE
 *     register     cuMemHostRegister_v2          registered SIZE, of memory that hold_register()
 * gets by
 *                                                aligned_alloc() */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE 4096
#define TOO_MUCH (1UL << 50) /* bytes */
#define ROWS 3
#define NOBODYS 0x600000000000UL /* an address at which there is nothing */

typedef unsigned long long address_t;

struct location {
	int type, id;
};

struct prop {
	int type, handle_types;
	struct location location;
	void *metadata;
	unsigned char flags[8];
};

struct access {
	struct location location;
	int flags;
};

/* NAME, PARAMETERS, NAME for cuGetProcAddress_v2(), and whether it is the function for per-thread streams. */
#define FUNCTIONS(F)                                                                                                   \
	F(cuInit, (unsigned int), "cuInit", 0)                                                                         \
	F(cuDriverGetVersion, (int *), "cuDriverGetVersion", 0)                                                        \
	F(cuMemAlloc_v2, (address_t *, size_t), "cuMemAlloc", 0)                                                       \
	F(cuMemFree_v2, (address_t), "cuMemFree", 0)                                                                   \
	F(cuMemAllocPitch_v2, (address_t *, size_t *, size_t, size_t, unsigned int), "cuMemAllocPitch", 0)             \
	F(cuMemAllocManaged, (address_t *, size_t, unsigned int), "cuMemAllocManaged", 0)                              \
	F(cuMemAllocAsync, (address_t *, size_t, void *), "cuMemAllocAsync", 0)                                        \
	F(cuMemAllocAsync_ptsz, (address_t *, size_t, void *), "cuMemAllocAsync", 1)                                   \
	F(cuMemAllocFromPoolAsync, (address_t *, size_t, void *, void *), "cuMemAllocFromPoolAsync", 0)                \
	F(cuMemAllocFromPoolAsync_ptsz, (address_t *, size_t, void *, void *), "cuMemAllocFromPoolAsync", 1)           \
	F(cuMemFreeAsync, (address_t, void *), "cuMemFreeAsync", 0)                                                    \
	F(cuMemFreeAsync_ptsz, (address_t, void *), "cuMemFreeAsync", 1)                                               \
	F(cuMemCreate, (address_t *, size_t, const struct prop *, unsigned long long), "cuMemCreate", 0)               \
	F(cuMemRelease, (address_t), "cuMemRelease", 0)                                                                \
	F(cuMemRetainAllocationHandle, (address_t *, void *), "cuMemRetainAllocationHandle", 0)                        \
	F(cuMemExportToShareableHandle, (void *, address_t, int, unsigned long long), "cuMemExportToShareableHandle",  \
	  0)                                                                                                           \
	F(cuMemImportFromShareableHandle, (address_t *, void *, int), "cuMemImportFromShareableHandle", 0)             \
	F(cuMemAddressReserve, (address_t *, size_t, size_t, address_t, unsigned long long), "cuMemAddressReserve", 0) \
	F(cuMemAddressFree, (address_t, size_t), "cuMemAddressFree", 0)                                                \
	F(cuMemMap, (address_t, size_t, size_t, address_t, unsigned long long), "cuMemMap", 0)                         \
	F(cuMemUnmap, (address_t, size_t), "cuMemUnmap", 0)                                                            \
	F(cuMemSetAccess, (address_t, size_t, const struct access *, size_t), "cuMemSetAccess", 0)                     \
	F(cuMemHostAlloc, (void **, size_t, unsigned int), "cuMemHostAlloc", 0)                                        \
	F(cuMemAllocHost_v2, (void **, size_t), "cuMemAllocHost", 0)                                                   \
	F(cuMemFreeHost, (void *), "cuMemFreeHost", 0)                                                                 \
	F(cuMemHostRegister_v2, (void *, size_t, unsigned int), "cuMemHostRegister", 0)                                \
	F(cuMemHostUnregister, (void *), "cuMemHostUnregister", 0)

#define POINTER(name, parameters, base, per_thread) static int(*name) parameters;
FUNCTIONS(POINTER)

static const struct {
	const char *name, *base;
	int per_thread;
	void *pointer;
} functions[] = {
#define ENTRY(name, parameters, base, per_thread) { #name, base, per_thread, &name },
	FUNCTIONS(ENTRY)
};
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void *library;
static int device;

static void check(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "cuda: %s\n", what);
		exit(1);
	}
}

static void *stub(const char *name)
{
	void *function = library ? dlsym(library, name) : NULL;

	check(function != NULL, name);
	return function;
}

/* ---- the functions that allocate */

struct object {
	union {
		address_t address; /* or handle */
		void *host;
	};
	size_t size; /* bytes, as ordered */
	address_t handle;
};

/* The result is used, so that the function is on the stack while it calls. */
#define HOLD(api, call)                                                                                                \
	__attribute__((noinline)) int hold_##api(struct object *o)                                                     \
	{                                                                                                              \
		int result = call;                                                                                     \
                                                                                                                       \
		__asm__ volatile("" : "+r"(result) : : "memory");                                                      \
		return result;                                                                                         \
	}

static size_t pitch;

HOLD(malloc, cuMemAlloc_v2(&o->address, o->size))
HOLD(pitch, cuMemAllocPitch_v2(&o->address, &pitch, o->size, ROWS, 4))
HOLD(managed, cuMemAllocManaged(&o->address, o->size, 1))
HOLD(async, cuMemAllocAsync(&o->address, o->size, NULL))
HOLD(async_ptsz, cuMemAllocAsync_ptsz(&o->address, o->size, NULL))
HOLD(pool, cuMemAllocFromPoolAsync(&o->address, o->size, NULL, NULL))
HOLD(pool_ptsz, cuMemAllocFromPoolAsync_ptsz(&o->address, o->size, NULL, NULL))
HOLD(hostalloc, cuMemHostAlloc(&o->host, o->size, 0))
HOLD(allochost, cuMemAllocHost_v2(&o->host, o->size))

static inline __attribute__((always_inline)) int create(struct object *o, int type, int id)
{
	const struct prop prop = { .type = 1, .handle_types = 1, .location = { type, id } };

	return cuMemCreate(&o->handle, o->size, &prop, 0);
}

HOLD(create, create(o, 1, device))
HOLD(create_host, create(o, 2, 0))

static inline __attribute__((always_inline)) int map(struct object *o)
{
	const struct access access = { .location = { 1, device }, .flags = 3 };
	int result = create(o, 1, device);

	if (result)
		return result;
	check(!cuMemAddressReserve(&o->address, o->size, 0, 0, 0), "cuMemAddressReserve");
	check(!cuMemMap(o->address, o->size, 0, o->handle, 0), "cuMemMap");
	check(!cuMemSetAccess(o->address, o->size, &access, 1), "cuMemSetAccess");
	return 0;
}

static inline __attribute__((always_inline)) int lend(struct object *o)
{
	int result = map(o);

	if (!result)
		check(!cuMemRelease(o->handle), "cuMemRelease");
	return result;
}

static inline __attribute__((always_inline)) int import(struct object *o)
{
	int file, result = create(o, 1, device);

	if (result)
		return result;
	check(!cuMemExportToShareableHandle(&file, o->handle, 1, 0), "cuMemExportToShareableHandle");
	check(!cuMemImportFromShareableHandle(&o->address, (void *)(intptr_t)file, 1),
	      "cuMemImportFromShareableHandle");
	close(file);
	return 0;
}

static inline __attribute__((always_inline)) int registered(struct object *o)
{
	const size_t page = 4096;
	void *p = aligned_alloc(page, o->size < TOO_MUCH ? (o->size + page - 1) / page * page : page);
	int result;

	check(p != NULL, "aligned_alloc");
	result = cuMemHostRegister_v2(p, o->size, 0);
	if (result)
		free(p);
	else
		o->host = p;
	return result;
}

HOLD(segment, map(o))
HOLD(lent, lend(o))
HOLD(import, import(o))
HOLD(register, registered(o))

/* ---- the functions that free */

static int free_device(struct object *o)
{
	return cuMemFree_v2(o->address);
}

static int free_async(struct object *o)
{
	return cuMemFreeAsync(o->address, NULL);
}

static int free_async_ptsz(struct object *o)
{
	return cuMemFreeAsync_ptsz(o->address, NULL);
}

static int free_handle(struct object *o)
{
	return cuMemRelease(o->handle);
}

static int free_lent(struct object *o)
{
	int result = cuMemUnmap(o->address, o->size);

	if (!result)
		check(!cuMemAddressFree(o->address, o->size), "cuMemAddressFree");
	return result;
}

static int free_segment(struct object *o)
{
	int result = free_lent(o);

	if (!result)
		check(!cuMemRelease(o->handle), "cuMemRelease");
	return result;
}

static int free_import(struct object *o)
{
	int result = cuMemRelease(o->address);

	if (!result)
		check(!cuMemRelease(o->handle), "cuMemRelease");
	return result;
}

static int free_host(struct object *o)
{
	return cuMemFreeHost(o->host);
}

static int free_registered(struct object *o)
{
	int result = cuMemHostUnregister(o->host);

	if (!result)
		free(o->host);
	return result;
}

/* ---- objects held */

static struct api {
	const char *name;
	int (*hold)(struct object *), (*free)(struct object *);
	struct object *objects;
	long first, end, room;
} apis[] = {
	{ "malloc", hold_malloc, free_device },
	{ "pitch", hold_pitch, free_device },
	{ "managed", hold_managed, free_device },
	{ "async", hold_async, free_async },
	{ "async_ptsz", hold_async_ptsz, free_async_ptsz },
	{ "pool", hold_pool, free_async },
	{ "pool_ptsz", hold_pool_ptsz, free_async_ptsz },
	{ "create", hold_create, free_handle },
	{ "create_host", hold_create_host, free_handle },
	{ "segment", hold_segment, free_segment },
	{ "lent", hold_lent, free_lent },
	{ "import", hold_import, free_import },
	{ "hostalloc", hold_hostalloc, free_host },
	{ "allochost", hold_allochost, free_host },
	{ "register", hold_register, free_registered },
};

static struct api retained = { .name = "retain", .free = free_handle };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the lists */

static void append(struct api *api, const struct object *o)
{
	pthread_mutex_lock(&mutex);
	if (api->end == api->room) {
		api->room = api->room ? 2 * api->room : 1024;
		api->objects = realloc(api->objects, api->room * sizeof(*o));
		check(api->objects != NULL, "realloc");
	}
	api->objects[api->end++] = *o;
	pthread_mutex_unlock(&mutex);
}

static struct object *oldest(struct api *api)
{
	check(api->first < api->end, api->name);
	return &api->objects[api->first];
}

static void drop(struct api *api, long n)
{
	for (long i = 0; i < n; i++) {
		check(!api->free(oldest(api)), api->name);
		api->first++;
	}
}

static void hold(struct api *api, long n, size_t size)
{
	for (long i = 0; i < n; i++) {
		struct object o = { .size = size };

		check(!api->hold(&o), api->name);
		append(api, &o);
	}
}

__attribute__((noinline)) void churn_here(struct api *api, long n, size_t size)
{
	for (long i = 0; i < n; i++) {
		struct object o = { .size = size };

		check(!api->hold(&o) && !api->free(&o), api->name);
	}
}

static void reuse(struct api *from, struct api *to, long n)
{
	long same = 0;

	for (long i = 0; i < n; i++) {
		const struct object was = *oldest(from);

		drop(from, 1);
		hold(to, 1, was.size);
		same += to->objects[to->end - 1].address == was.address &&
			to->objects[to->end - 1].handle == was.handle;
	}
	printf("reused %ld\n", same);
}

/* ---- failures */

static void fail(struct api *api, long n)
{
	for (long i = 0; i < n; i++) {
		struct object o = { .size = TOO_MUCH };

		check(api->hold(&o), api->name);
	}
}

static void refuse(struct api *api, long n, size_t size)
{
	void (*fail_next)(int) = stub("stub_fail_next");

	for (long i = 0; i < n; i++) {
		struct object o = { .size = size };

		fail_next(1);
		check(api->hold(&o), api->name);
	}
}

static void keep(struct api *api, long n)
{
	void (*fail_next)(int) = stub("stub_fail_next");

	for (long i = 0; i < n; i++) {
		fail_next(1);
		check(api->free(oldest(api)), api->name);
	}
}

static void wrong(long n)
{
	for (long i = 0; i < n; i++) {
		check(cuMemFree_v2(NOBODYS), "cuMemFree_v2");
		check(!cuMemFreeAsync || cuMemFreeAsync(NOBODYS, NULL), "cuMemFreeAsync");
		check(!cuMemFreeAsync_ptsz || cuMemFreeAsync_ptsz(NOBODYS, NULL), "cuMemFreeAsync_ptsz");
		check(!cuMemRelease || cuMemRelease(NOBODYS), "cuMemRelease");
		check(cuMemFreeHost((void *)NOBODYS), "cuMemFreeHost");
		check(cuMemHostUnregister((void *)NOBODYS), "cuMemHostUnregister");
	}
}

/* ---- threads */

struct task {
	struct api *api;
	long n;
	size_t size;
};

void *thread_here(void *argument)
{
	struct task *task = argument;

	hold(task->api, task->n, task->size);
	return task;
}

void *freed_elsewhere(void *argument)
{
	struct task *task = argument;

	drop(task->api, task->n);
	return task;
}

static void run(int n, void *(*function)(void *), struct task task)
{
	pthread_t threads[64];

	check(n > 0 && n <= 64, "threads");
	for (int i = 0; i < n; i++)
		check(!pthread_create(&threads[i], NULL, function, &task), "pthread_create");
	for (int i = 0; i < n; i++)
		check(!pthread_join(threads[i], NULL), "pthread_join");
}

/* ---- handles */

__attribute__((noinline)) void retained_here(struct object *from)
{
	struct object o = { .size = from->size };

	check(!cuMemRetainAllocationHandle(&o.handle, (void *)from->address), "cuMemRetainAllocationHandle");
	check(o.handle == from->handle, "retained handle");
	append(&retained, &o);
}

static void retain(long n)
{
	struct api *segments = NULL;

	for (size_t i = 0; i < COUNT(apis); i++)
		if (!strcmp(apis[i].name, "segment"))
			segments = &apis[i];
	check(segments->end - segments->first >= n, "retain");
	for (long i = 0; i < n; i++)
		retained_here(&segments->objects[segments->first + i]);
}

/* ---- memory of the host */

static void touch(struct api *api, long n)
{
	for (long i = api->first; i < api->first + n; i++) {
		check(i < api->end, api->name);
		for (size_t at = 0; at < api->objects[i].size; at += 4096)
			((volatile char *)api->objects[i].host)[at] = 1;
	}
}

static char *overlapped;
static size_t overlapping; /* bytes */

__attribute__((noinline)) void overlap_here(size_t size)
{
	overlapped = malloc(size);
	overlapping = size;
	check(overlapped != NULL, "malloc");
	memset(overlapped, 1, size);
	check(!cuMemHostRegister_v2(overlapped, size / 4 * 3, 0), "the first part");
	check(!cuMemHostRegister_v2(overlapped + size / 4, size - size / 4, 0), "the last part");
}

static void separate(void)
{
	check(!cuMemHostUnregister(overlapped), "the first part");
	check(!cuMemHostUnregister(overlapped + overlapping / 4), "the last part");
	free(overlapped);
}

static address_t spanned;

/* Maps N pieces side by side, to whose memory there are no handles any more. */
__attribute__((noinline)) void span_here(long n, size_t size)
{
	check(!cuMemAddressReserve(&spanned, n * size, 0, 0, 0), "cuMemAddressReserve");
	for (long i = 0; i < n; i++) {
		struct object o = { .size = size };

		check(!create(&o, 1, device), "cuMemCreate");
		check(!cuMemMap(spanned + i * size, size, 0, o.handle, 0), "cuMemMap");
		check(!cuMemRelease(o.handle), "cuMemRelease");
	}
}

static void unspan(size_t from, size_t size)
{
	check(!cuMemUnmap(spanned + from, size), "cuMemUnmap");
}

static void map_file(const char *path)
{
	int file = open(path, O_RDONLY);

	check(file >= 0 && mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) != MAP_FAILED, path);
	close(file);
}

/* ---- the library */

static void load(const char *path)
{
	library = dlopen(path, RTLD_NOW);
	check(library != NULL, path);
	for (size_t i = 0; i < COUNT(functions); i++) {
		void *found = dlsym(library, functions[i].name);

		memcpy(functions[i].pointer, &found, sizeof(found));
		if (!found)
			printf("missing %s\n", functions[i].name);
	}
	check(!cuInit(0), "cuInit");
}

static void resolve(void)
{
	int (*get)(const char *, void **, int, uint64_t, int *) = stub("cuGetProcAddress_v2");
	int status;

	for (size_t i = 0; i < COUNT(functions); i++) {
		check(!get(functions[i].base, functions[i].pointer, 12040, functions[i].per_thread ? 2 : 1, &status) &&
			      !status,
		      functions[i].name);
	}
}

static void totals(void)
{
	const char *(*kind)(int) = stub("stub_kind");
	long (*objects)(int) = stub("stub_objects");
	unsigned long (*bytes)(int) = stub("stub_bytes");

	for (int i = 0; kind(i); i++)
		printf("%s %ld %lu\n", kind(i), objects(i), bytes(i));
}

/* ---- orders */

static int orders_of_child; /* where it gets its orders */
static int passed_on;       /* the child reports that the order is done */

static void start_child(void)
{
	int orders[2];
	pid_t pid;

	check(!pipe(orders), "pipe");
	fflush(stdout);
	pid = fork();
	check(pid >= 0, "fork");
	close(orders[pid == 0]);
	orders_of_child = orders[1];
	passed_on = pid != 0;
	if (pid == 0) {
		check(freopen("/dev/null", "r", stdin) && dup2(orders[0], 0) == 0, "orders");
		close(orders[0]);
		printf("child %d\n", getpid());
	}
}

static void pass_on(const char *order)
{
	check(dprintf(orders_of_child, "%s\n", order) > 0, "child");
	passed_on = 1;
}

static struct api *named(const char *name)
{
	for (size_t i = 0; i < COUNT(apis); i++)
		if (!strcmp(apis[i].name, name))
			return &apis[i];
	check(0, name);
	return NULL;
}

/* Executes an order that begins with an API. */
static int execute_for(const char *verb, struct api *api, long n, size_t size)
{
	if (!strcmp(verb, "hold"))
		hold(api, n, size);
	else if (!strcmp(verb, "free"))
		drop(api, n);
	else if (!strcmp(verb, "elsewhere"))
		run(1, freed_elsewhere, (struct task){ api, n });
	else if (!strcmp(verb, "churn"))
		churn_here(api, n, size);
	else if (!strcmp(verb, "fail"))
		fail(api, n);
	else if (!strcmp(verb, "refuse"))
		refuse(api, n, size);
	else if (!strcmp(verb, "keep"))
		keep(api, n);
	else if (!strcmp(verb, "touch"))
		touch(api, n);
	else
		return 0;
	return 1;
}

/* Executes an order that is a word alone. */
static int execute_word(const char *line)
{
	if (!strcmp(line, "resolve"))
		resolve();
	else if (!strcmp(line, "totals"))
		totals();
	else if (!strcmp(line, "fork"))
		start_child();
	else if (!strcmp(line, "overlap"))
		separate();
	else
		return 0;
	return 1;
}

static void execute(const char *line)
{
	char verb[LINE], word[LINE], other[LINE];
	long n = 0;
	size_t size = 0, from = 0;
	int t;

	if (!strncmp(line, "child ", 6))
		pass_on(line + 6);
	else if (execute_word(line))
		return;
	else if (sscanf(line, "load %s", word) == 1)
		load(word);
	else if (sscanf(line, "map %s", word) == 1)
		map_file(word);
	else if (sscanf(line, "exec %s", word) == 1)
		check(execl(word, word, (char *)NULL) == 0, word);
	else if (sscanf(line, "overlap %zu", &size) == 1)
		overlap_here(size);
	else if (sscanf(line, "span %ld %zu", &n, &size) == 2)
		span_here(n, size);
	else if (sscanf(line, "unspan %zu %zu", &from, &size) == 2)
		unspan(from, size);
	else if (sscanf(line, "wrong %ld", &n) == 1)
		wrong(n);
	else if (sscanf(line, "device %d", &t) == 1)
		device = t;
	else if (sscanf(line, "retain %ld", &n) == 1)
		retain(n);
	else if (sscanf(line, "release %ld", &n) == 1)
		drop(&retained, n);
	else if (sscanf(line, "threads %d %s %ld %zu", &t, word, &n, &size) == 4)
		run(t, thread_here, (struct task){ named(word), n, size });
	else if (sscanf(line, "reuse %s %s %ld", word, other, &n) == 3)
		reuse(named(word), named(other), n);
	else
		check(sscanf(line, "%s %s %ld %zu", verb, word, &n, &size) >= 3 &&
			      execute_for(verb, named(word), n, size),
		      line);
}

int main(int argc, char **argv)
{
	static char line[LINE];

	if (argc > 1)
		load(argv[1]);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		passed_on = 0;
		execute(line);
		if (!passed_on)
			puts("done");
		fflush(stdout);
	}
	return 0;
}
