/* Replaces libcuda.so.1, NVIDIA's driver library: its calls that allocate and free, without a GPU,
 * and the few others that PyTorch's allocator makes. Names, parameters and results are cuda.h's.
 * Device addresses, managed ones too, are numbers: nothing is mapped there. They are multiples of
 * 512 and handed out again after a free, the last first. Pinned host memory is real, and resident.
 *
 * As the driver does, the stub counts references of memory from cuMemCreate(): it is freed when
 * every handle is released and nothing is mapped to it. cuMemCreate() and reservations take
 * multiples of 2 MiB. A handle is the address of the driver's own object, which is a block of
 * malloc.
 *
 * Calls nest: cuMemAllocPitch_v2() and cuMemAllocHost_v2() call cuMemAlloc_v2() and
 * cuMemHostAlloc() as any library would, and the _ptsz functions jump to the ones without the
 * suffix. Where the outer one fails, the inner one has succeeded before.
 *
 * The stub refuses more than LARGEST bytes, and the next N calls after stub_fail_next(N); every
 * second time something that is no address is left in the caller's variable. stub_objects() and
 * stub_bytes() count the present objects.
 *
 * -DOLD leaves out the names that a driver of CUDA 10.1 lacks. -DGPU_BYTES=N is how much memory the
 * GPU has. */
#define _GNU_SOURCE
#include <pthread.h>
#include <search.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef struct CUstream_st *CUstream;
typedef struct CUmemPoolHandle_st *CUmemoryPool;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713
};

typedef struct {
	int type; /* 1: a device; more: the host */
	int id;
} CUmemLocation;

typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;

#define LARGEST (1ULL << 46) /* bytes */
#ifndef GPU_BYTES
#define GPU_BYTES LARGEST
#endif
#define FIRST_ADDRESS 0x0a0000000000ULL /* where no process has anything */
#define LAST_ADDRESS 0x500000000000ULL
#define NO_ADDRESS 0x0bad0bad0000ULL
#define GRANULARITY (2ULL << 20) /* bytes */
#define ALIGNMENT 512ULL         /* bytes */
#define DEVICES 8

enum kind {
	DEVICE,
	PITCH,
	MANAGED,
	ASYNC,
	POOL,
	CREATED,
	CREATED_HOST,
	IMPORTED,
	PINNED,
	REGISTERED,
	RESERVED,
	MAPPED,
	KINDS
};

static const char *const kind_names[KINDS] = { "device", "pitch",      "managed",      "async",
					       "pool",   "created",    "created_host", "imported",
					       "pinned", "registered", "reserved",     "mapped" };

/* Addresses of different spaces have nothing to do with each other. */
enum space { ON_DEVICE, HANDLE, ON_HOST, REGISTRATION, RESERVATION, MAPPING };

struct object {
	enum space space;
	uint64_t address;
	size_t size; /* bytes */
	enum kind kind;
	int handles, mappings;  /* of a HANDLE */
	struct object *backing; /* of a MAPPING */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *objects; /* a tree of search.h */
static long counts[KINDS];
static unsigned long bytes[KINDS];
static int failures; /* that are to come */
static __thread int nested;

/* ---- objects */

static int compare(const void *left, const void *right)
{
	const struct object *a = left, *b = right;

	if (a->space != b->space)
		return a->space < b->space ? -1 : 1;
	return a->address < b->address ? -1 : a->address > b->address;
}

static struct object *find(enum space space, uint64_t address)
{
	struct object key = { .space = space, .address = address };
	struct object **found = tfind(&key, &objects, compare);

	return found ? *found : NULL;
}

static void count(const struct object *o, int sign)
{
	counts[o->kind] += sign;
	bytes[o->kind] += sign * o->size;
}

/* An address of 0 means the address of the object itself. */
static struct object *add(enum space space, enum kind kind, uint64_t address, size_t size)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	*o = (struct object){ .space = space, .kind = kind, .address = address ? address : (uintptr_t)o, .size = size };
	if (!tsearch(o, &objects, compare))
		abort();
	count(o, 1);
	return o;
}

static void drop(struct object *o)
{
	count(o, -1);
	tdelete(o, &objects, compare);
	free(o);
}

/* ---- addresses */

struct hole {
	uint64_t address;
	size_t size;
	struct hole *next;
};

static struct hole *holes[1024];
static uint64_t next_address = FIRST_ADDRESS;

static uint64_t rounded(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static uint64_t unit_of(size_t size)
{
	return size < GRANULARITY ? ALIGNMENT : GRANULARITY;
}

static struct hole **holes_of(size_t size)
{
	return &holes[size / ALIGNMENT % 1024];
}

/* Gives 0 when there is none left. */
static uint64_t take_address(size_t size)
{
	uint64_t address;

	size = rounded(size, unit_of(size));
	for (struct hole **at = holes_of(size); *at; at = &(*at)->next) {
		struct hole *hole = *at;

		if (hole->size != size)
			continue;
		address = hole->address;
		*at = hole->next;
		free(hole);
		return address;
	}
	address = rounded(next_address, unit_of(size));
	if (size > LAST_ADDRESS - address)
		return 0;
	next_address = address + size;
	return address;
}

static void give_address(uint64_t address, size_t size)
{
	struct hole *hole = malloc(sizeof(*hole)), **first;

	if (!hole)
		abort();
	size = rounded(size, unit_of(size));
	first = holes_of(size);
	*hole = (struct hole){ .address = address, .size = size, .next = *first };
	*first = hole;
}

/* ---- refusals */

static int fails(void)
{
	if (nested || !failures)
		return 0;
	failures--;
	return 1;
}

static int fails_now(void)
{
	int failed;

	pthread_mutex_lock(&mutex);
	failed = fails();
	pthread_mutex_unlock(&mutex);
	return failed;
}

/* out is where the caller wants an address. */
static CUresult refuse(void *out)
{
	static unsigned long refusals;
	const uint64_t nothing = NO_ADDRESS;

	if (refusals++ % 2)
		memcpy(out, &nothing, sizeof(nothing));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* bytes */
static size_t used_on_gpu(void)
{
	size_t used = 0;

	for (enum kind kind = DEVICE; kind <= CREATED; kind++)
		used += bytes[kind];
	return used;
}

static int fits_on_gpu(size_t size)
{
	return size <= GPU_BYTES - used_on_gpu();
}

static CUresult unlocked(CUresult result)
{
	pthread_mutex_unlock(&mutex);
	return result;
}

/* ---- the driver */

CUresult cuInit(unsigned int flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
#ifdef OLD
	*version = 10010;
#else
	*version = 12040;
#endif
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
	*out = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of a stand-in";
	return CUDA_SUCCESS;
}

/* ---- the GPU */

/* By CUdevice_attribute; all others are 0. */
static const int attributes[] = {
	/* threads of a block, and its dimensions */
	[1] = 1024,
	[2] = 1024,
	[3] = 1024,
	[4] = 64,
	/* dimensions of a grid */
	[5] = INT32_MAX,
	[6] = 65535,
	[7] = 65535,
	/* bytes of shared memory of a block, threads of a warp, registers of a block */
	[8] = 48 << 10,
	[10] = 32,
	[12] = 65536,
	/* multiprocessors, and threads of one; the compute capability */
	[16] = 108,
	[39] = 2048,
	[75] = 8,
	/* bytes of shared memory and registers of a multiprocessor, and bytes a block can ask for */
	[81] = 164 << 10,
	[82] = 65536,
	[97] = 163 << 10,
};

CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device)
{
	const int known = sizeof(attributes) / sizeof(*attributes);

	if (!out || attribute < 1 || device < 0 || device >= DEVICES)
		return CUDA_ERROR_INVALID_VALUE;
	*out = attribute < known ? attributes[attribute] : 0;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	*flags = 0;
	*active = 1;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(void **out)
{
	static char context;

	*out = &context;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
	pthread_mutex_lock(&mutex);
	*total = GPU_BYTES;
	*available = GPU_BYTES - used_on_gpu();
	return unlocked(CUDA_SUCCESS);
}

/* Finds the object that an address is in. */
static int compare_range(const void *left, const void *right)
{
	const struct object *at = left, *o = right;

	if (at->space == o->space && at->address > o->address && at->address - o->address < o->size)
		return 0;
	return compare(left, right);
}

static int is_in(enum space space, CUdeviceptr address)
{
	struct object key = { .space = space, .address = address };

	return tfind(&key, &objects, compare_range) != NULL;
}

CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address)
{
	const int memory_type = 2, host = 1, device = 2;

	if (!out || attribute != memory_type)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mutex);
	if (is_in(ON_HOST, address) || is_in(REGISTRATION, address))
		*(int *)out = host;
	else if (is_in(ON_DEVICE, address) || is_in(MAPPING, address))
		*(int *)out = device;
	else
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	return unlocked(CUDA_SUCCESS);
}

/* ---- GPU memory */

static CUresult allocate(CUdeviceptr *out, size_t size, enum kind kind)
{
	uint64_t address;

	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mutex);
	if (fails() || !fits_on_gpu(size) || !(address = take_address(size)))
		return unlocked(refuse(out));
	add(ON_DEVICE, kind, address, size);
	*out = address;
	return unlocked(CUDA_SUCCESS);
}

static CUresult release(CUdeviceptr address)
{
	struct object *o;

	pthread_mutex_lock(&mutex);
	o = find(ON_DEVICE, address);
	if (!o || fails())
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	give_address(o->address, o->size);
	drop(o);
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	return allocate(out, size, DEVICE);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
	return release(address);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	struct object *o;
	CUdeviceptr address;
	CUresult result;
	int failed;

	if (!out || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	failed = fails_now();
	nested++;
	result = cuMemAlloc_v2(&address, height > LARGEST / width ? SIZE_MAX : rounded(width, ALIGNMENT) * height);
	if (failed && !result && cuMemFree_v2(address))
		abort();
	nested--;
	pthread_mutex_lock(&mutex);
	if (failed || result)
		return unlocked(refuse(out));
	o = find(ON_DEVICE, address);
	count(o, -1);
	o->kind = PITCH;
	count(o, 1);
	*out = address;
	*pitch = rounded(width, ALIGNMENT);
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	return flags ? allocate(out, size, MANAGED) : CUDA_ERROR_INVALID_VALUE;
}

#ifndef OLD
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
	return allocate(out, size, ASYNC);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream)
{
	return cuMemAllocAsync(out, size, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
	return allocate(out, size, POOL);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
	return cuMemAllocFromPoolAsync(out, size, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	return release(address);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
	return cuMemFreeAsync(address, stream);
}

/* ---- virtual memory */

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	struct object *o;

	if (!out || !prop || flags || !size || size % GRANULARITY || prop->location.type < 1 ||
	    prop->location.type > 4 || prop->location.id < 0 || prop->location.id >= DEVICES)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mutex);
	if (fails() || !fits_on_gpu(size))
		return unlocked(refuse(out));
	o = add(HANDLE, prop->location.type == 1 ? CREATED : CREATED_HOST, 0, size);
	o->handles = 1;
	*out = o->address;
	return unlocked(CUDA_SUCCESS);
}

static void drop_if_unused(struct object *o)
{
	if (!o->handles && !o->mappings)
		drop(o);
}

/* Gives the object of a handle that is not released. */
static struct object *held(CUmemGenericAllocationHandle handle)
{
	struct object *o = find(HANDLE, handle);

	return o && o->handles ? o : NULL;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct object *o;

	pthread_mutex_lock(&mutex);
	o = held(handle);
	if (!o || fails())
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	o->handles--;
	drop_if_unused(o);
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
	struct object *mapping;

	pthread_mutex_lock(&mutex);
	mapping = find(MAPPING, (uintptr_t)address);
	if (!out || !mapping || fails())
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	mapping->backing->handles++;
	*out = mapping->backing->address;
	return unlocked(CUDA_SUCCESS);
}

/* The shared object is a file that holds the size; any process can import it. */
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
				      unsigned long long flags)
{
	struct object *o;
	int file;

	pthread_mutex_lock(&mutex);
	o = held(handle);
	if (!out || !o || type != 1 || flags || fails())
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	file = memfd_create("shared", MFD_CLOEXEC);
	if (file < 0 || write(file, &o->size, sizeof(o->size)) != sizeof(o->size))
		return unlocked(CUDA_ERROR_OUT_OF_MEMORY);
	*(int *)out = file;
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shared, int type)
{
	struct object *o;
	size_t size;

	if (!out || type != 1 || pread((int)(intptr_t)shared, &size, sizeof(size), 0) != sizeof(size))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mutex);
	if (fails())
		return unlocked(refuse(out));
	o = add(HANDLE, IMPORTED, 0, size);
	o->handles = 1;
	*out = o->address;
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wanted,
			     unsigned long long flags)
{
	uint64_t address;

	if (!out || !size || size % GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mutex);
	if (fails() || size > LARGEST || !(address = take_address(size)))
		return unlocked(refuse(out));
	add(RESERVATION, RESERVED, address, size);
	*out = address;
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	struct object *o;

	pthread_mutex_lock(&mutex);
	o = find(RESERVATION, address);
	if (!o || o->size != size || fails())
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	give_address(o->address, o->size);
	drop(o);
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct object *o, *mapping;

	pthread_mutex_lock(&mutex);
	o = held(handle);
	if (!o || !address || offset || size != o->size || flags || find(MAPPING, address) || fails())
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	mapping = add(MAPPING, MAPPED, address, size);
	mapping->backing = o;
	o->mappings++;
	return unlocked(CUDA_SUCCESS);
}

/* Whether a range consists of whole mappings, one after the other. */
static int is_mapped(CUdeviceptr address, size_t size)
{
	for (const struct object *mapping; size; address += mapping->size, size -= mapping->size) {
		mapping = find(MAPPING, address);
		if (!mapping || mapping->size > size)
			return 0;
	}
	return 1;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	pthread_mutex_lock(&mutex);
	if (!size || !is_mapped(address, size) || fails())
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	for (CUdeviceptr end = address + size; address < end;) {
		struct object *mapping = find(MAPPING, address), *o = mapping->backing;

		address += mapping->size;
		drop(mapping);
		o->mappings--;
		drop_if_unused(o);
	}
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t n)
{
	pthread_mutex_lock(&mutex);
	if (!size || !is_mapped(address, size) || !access || !n)
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, int option)
{
	*out = GRANULARITY;
	return CUDA_SUCCESS;
}

/* Nothing is on the GPU to be written to. */
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t n, CUstream stream)
{
	return CUDA_SUCCESS;
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, unsigned int value, unsigned int f)
{
	return CUDA_SUCCESS;
}
#endif

/* ---- host memory */

static size_t pages(size_t size)
{
	return rounded(size, sysconf(_SC_PAGESIZE));
}

CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
	void *p;

	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mutex);
	if (fails() || size > LARGEST)
		return unlocked(refuse(out));
	p = mmap(NULL, pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return unlocked(refuse(out));
	memset(p, 1, pages(size));
	add(ON_HOST, PINNED, (uintptr_t)p, size);
	*out = p;
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemFreeHost(void *p)
{
	struct object *o;

	pthread_mutex_lock(&mutex);
	o = find(ON_HOST, (uintptr_t)p);
	if (!o || fails())
		return unlocked(CUDA_ERROR_INVALID_VALUE);
	munmap(p, pages(o->size));
	drop(o);
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemAllocHost_v2(void **out, size_t size)
{
	CUresult result;
	void *p;
	int failed;

	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	failed = fails_now();
	nested++;
	result = cuMemHostAlloc(&p, size, 0);
	if (failed && !result && cuMemFreeHost(p))
		abort();
	nested--;
	pthread_mutex_lock(&mutex);
	if (failed || result)
		return unlocked(refuse(out));
	*out = p;
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	if (!p || !size)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mutex);
	if (fails() || size > LARGEST)
		return unlocked(CUDA_ERROR_OUT_OF_MEMORY);
	if (find(REGISTRATION, (uintptr_t)p))
		return unlocked(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	add(REGISTRATION, REGISTERED, (uintptr_t)p, size);
	return unlocked(CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *p)
{
	struct object *o;

	pthread_mutex_lock(&mutex);
	o = find(REGISTRATION, (uintptr_t)p);
	if (!o || fails())
		return unlocked(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	drop(o);
	return unlocked(CUDA_SUCCESS);
}

/* ---- finding functions */

#ifndef OLD
#define PER_THREAD_DEFAULT_STREAM 2 /* flag */

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status);

/* Names are without their versions, as libcudart asks for them. */
static const struct procedure {
	const char *name;
	void *function, *per_thread;
} procedures[] = {
	{ "cuInit", cuInit },
	{ "cuDriverGetVersion", cuDriverGetVersion },
	{ "cuGetProcAddress", cuGetProcAddress_v2 },
	{ "cuMemAlloc", cuMemAlloc_v2 },
	{ "cuMemAllocPitch", cuMemAllocPitch_v2 },
	{ "cuMemAllocManaged", cuMemAllocManaged },
	{ "cuMemAllocAsync", cuMemAllocAsync, cuMemAllocAsync_ptsz },
	{ "cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz },
	{ "cuMemFree", cuMemFree_v2 },
	{ "cuMemFreeAsync", cuMemFreeAsync, cuMemFreeAsync_ptsz },
	{ "cuMemCreate", cuMemCreate },
	{ "cuMemRelease", cuMemRelease },
	{ "cuMemRetainAllocationHandle", cuMemRetainAllocationHandle },
	{ "cuMemImportFromShareableHandle", cuMemImportFromShareableHandle },
	{ "cuMemExportToShareableHandle", cuMemExportToShareableHandle },
	{ "cuMemAddressReserve", cuMemAddressReserve },
	{ "cuMemAddressFree", cuMemAddressFree },
	{ "cuMemMap", cuMemMap },
	{ "cuMemUnmap", cuMemUnmap },
	{ "cuMemSetAccess", cuMemSetAccess },
	{ "cuMemHostAlloc", cuMemHostAlloc },
	{ "cuMemAllocHost", cuMemAllocHost_v2 },
	{ "cuMemFreeHost", cuMemFreeHost },
	{ "cuMemHostRegister", cuMemHostRegister_v2 },
	{ "cuMemHostUnregister", cuMemHostUnregister },
};

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
	const struct procedure *end = procedures + sizeof(procedures) / sizeof(*procedures);

	for (const struct procedure *p = procedures; p < end; p++) {
		if (strcmp(p->name, name))
			continue;
		*out = flags & PER_THREAD_DEFAULT_STREAM && p->per_thread ? p->per_thread : p->function;
		if (status)
			*status = 0;
		return CUDA_SUCCESS;
	}
	*out = NULL;
	if (status)
		*status = 1;
	return CUDA_ERROR_NOT_FOUND;
}
#endif

/* ---- for tests */

/* Has the next n calls fail that would allocate or free; calls that the library makes itself are not counted. */
void stub_fail_next(int n)
{
	pthread_mutex_lock(&mutex);
	failures = n;
	pthread_mutex_unlock(&mutex);
}

/* Gives the name of a kind, from 0 on, and NULL after the last. */
const char *stub_kind(int kind)
{
	return kind >= 0 && kind < KINDS ? kind_names[kind] : NULL;
}

long stub_objects(int kind)
{
	long n;

	pthread_mutex_lock(&mutex);
	n = counts[kind];
	pthread_mutex_unlock(&mutex);
	return n;
}

unsigned long stub_bytes(int kind)
{
	unsigned long n;

	pthread_mutex_lock(&mutex);
	n = bytes[kind];
	pthread_mutex_unlock(&mutex);
	return n;
}
