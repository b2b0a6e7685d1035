/* Replaces libcudart.so.12, CUDA's runtime, for a PyTorch on a machine without a GPU. Names,
 * parameters and results are cuda_runtime_api.h's:
 * https://docs.nvidia.com/cuda/archive/12.4.1/cuda-runtime-api/index.html
 *
 * As the runtime does, it loads libcuda.so.1 with the first call and has it allocate and free:
 * that is the stand-in of ../libcuda.c. There is one GPU. Kernels, copies to the GPU and memsets
 * succeed and do nothing; a copy to the host leaves zeros. All work is done at once, so that
 * every event has happened and every stream is idle. A stream that captures says so, and its
 * graph is empty. stubs.sh has all functions that are not here: they only succeed or fail. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int cudaError_t;

enum {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInitializationError = 3,
	cudaErrorInvalidDevice = 101,
	cudaErrorInvalidResourceHandle = 400,
	cudaErrorIllegalState = 401
};

#define RUNTIME_VERSION 12040

static __thread cudaError_t last_error;

static cudaError_t result(cudaError_t error)
{
	if (error)
		last_error = error;
	return error;
}

/* ---- the driver */

/* Gives a function of the driver. The stand-in's results have the same numbers in the runtime. */
static void *driver(const char *name)
{
	static void *library;
	void *function;

	if (!library)
		library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
	function = library ? dlsym(library, name) : NULL;
	if (!function)
		abort();
	return function;
}

#define DRIVER(name, ...) result(((cudaError_t(*)())driver(#name))(__VA_ARGS__))

cudaError_t cudaDriverGetVersion(int *version)
{
	return DRIVER(cuDriverGetVersion, version);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = RUNTIME_VERSION;
	return cudaSuccess;
}

/* ---- errors */

cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
	switch (error) {
	case cudaSuccess:
		return "no error";
	case cudaErrorMemoryAllocation:
		return "out of memory";
	default:
		return "an error of the stand-in for CUDA's runtime";
	}
}

/* ---- the GPU */

/* The first fields of cudaDeviceProp, and the few others that are not zero. */
struct cudaDeviceProp {
	char name[256];
	unsigned char uuid[16], luid[8];
	unsigned int luidDeviceNodeMask;
	size_t totalGlobalMem, sharedMemPerBlock; /* bytes */
	int regsPerBlock, warpSize;
	size_t memPitch;
	int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
	size_t totalConstMem;
	int major, minor;
	size_t textureAlignment, texturePitchAlignment;
	int deviceOverlap, multiProcessorCount;
	unsigned char unused1[224];
	int l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
	unsigned char unused2[12];
	size_t sharedMemPerMultiprocessor; /* bytes */
	unsigned char unused3[48];
	size_t sharedMemPerBlockOptin; /* bytes */
	unsigned char unused4[328];
};

_Static_assert(sizeof(struct cudaDeviceProp) == 1032, "cudaDeviceProp of CUDA 12");

static const struct cudaDeviceProp properties = {
	.name = "stand-in for a GPU",
	.uuid = { 1 },
	.sharedMemPerBlock = 48 << 10,
	.regsPerBlock = 65536,
	.warpSize = 32,
	.memPitch = INT32_MAX,
	.maxThreadsPerBlock = 1024,
	.maxThreadsDim = { 1024, 1024, 64 },
	.maxGridSize = { INT32_MAX, 65535, 65535 },
	.clockRate = 1410000,
	.totalConstMem = 64 << 10,
	.major = 8,
	.minor = 0,
	.textureAlignment = 512,
	.texturePitchAlignment = 32,
	.multiProcessorCount = 108,
	.l2CacheSize = 40 << 20,
	.maxThreadsPerMultiProcessor = 2048,
	.sharedMemPerMultiprocessor = 164 << 10,
	.sharedMemPerBlockOptin = 163 << 10,
};

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = 1;
	return DRIVER(cuInit, 0);
}

cudaError_t cudaGetDevice(int *device)
{
	*device = 0;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	return result(device ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *out, int device)
{
	size_t available;

	*out = properties;
	if (device)
		return result(cudaErrorInvalidDevice);
	return DRIVER(cuMemGetInfo_v2, &available, &out->totalGlobalMem);
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
	return DRIVER(cuDeviceGetAttribute, value, attribute, device);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = 0;
	return cudaSuccess;
}

/* ---- memory */

cudaError_t cudaMalloc(void **out, size_t size)
{
	return DRIVER(cuMemAlloc_v2, out, size);
}

cudaError_t cudaFree(void *p)
{
	return p ? DRIVER(cuMemFree_v2, p) : cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
	return DRIVER(cuMemGetInfo_v2, available, total);
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned int flags)
{
	return DRIVER(cuMemHostAlloc, out, size, flags);
}

cudaError_t cudaFreeHost(void *p)
{
	return p ? DRIVER(cuMemFreeHost, p) : cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned int flags)
{
	return DRIVER(cuMemHostRegister_v2, p, size, flags);
}

cudaError_t cudaHostUnregister(void *p)
{
	return DRIVER(cuMemHostUnregister, p);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *p, unsigned int flags)
{
	*out = p;
	return cudaSuccess;
}

struct cudaPointerAttributes {
	int type; /* 0: unknown to CUDA; 1: of the host; 2: of a GPU */
	int device;
	void *devicePointer, *hostPointer;
};

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
	const int memory_type = 2; /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
	cudaError_t (*attribute)() = driver("cuPointerGetAttribute");
	int type;

	if (attribute(&type, memory_type, p))
		type = 0;
	*out = (struct cudaPointerAttributes){ .type = type, .device = type ? 0 : -2 };
	out->devicePointer = type ? (void *)p : NULL;
	out->hostPointer = type == 1 ? (void *)p : NULL;
	return cudaSuccess;
}

enum { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
	if (kind == cudaMemcpyHostToHost)
		memcpy(to, from, size);
	if (kind == cudaMemcpyDeviceToHost)
		memset(to, 0, size);
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream)
{
	return cudaMemcpy(to, from, size, kind);
}

/* ---- streams and graphs */

struct stream {
	unsigned long long capture; /* its number; 0: none */
	int priority;
};

/* The default streams are numbers: 0, 1 and 2. They capture nothing. */
static struct stream *made(struct stream *stream)
{
	return (uintptr_t)stream > 2 ? stream : NULL;
}

cudaError_t cudaStreamCreateWithPriority(struct stream **out, unsigned int flags, int priority)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return result(cudaErrorMemoryAllocation);
	(*out)->priority = priority;
	return cudaSuccess;
}

cudaError_t cudaStreamCreate(struct stream **out)
{
	return cudaStreamCreateWithPriority(out, 0, 0);
}

cudaError_t cudaStreamDestroy(struct stream *stream)
{
	free(made(stream));
	return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(struct stream *stream, int *priority)
{
	*priority = made(stream) ? stream->priority : 0;
	return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(struct stream *stream, void (*function)(void *), void *data)
{
	function(data);
	return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode)
{
	static __thread int current;
	int before = current;

	current = *mode;
	*mode = before;
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(struct stream *stream, int mode)
{
	static unsigned long long captures;

	if (!made(stream) || stream->capture)
		return result(cudaErrorIllegalState);
	stream->capture = __atomic_add_fetch(&captures, 1, __ATOMIC_RELAXED);
	return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(struct stream *stream, int *status)
{
	*status = made(stream) && stream->capture;
	return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo_v2(struct stream *stream, int *status, unsigned long long *capture, void **graph,
					const void **dependencies, size_t *count)
{
	*status = made(stream) && stream->capture;
	if (capture)
		*capture = made(stream) ? stream->capture : 0;
	if (count)
		*count = 0;
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(struct stream *stream, void **graph)
{
	if (!made(stream) || !stream->capture)
		return result(cudaErrorIllegalState);
	stream->capture = 0;
	*graph = malloc(1);
	return result(*graph ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* A graph has one node: PyTorch warns of empty ones. */
cudaError_t cudaGraphGetNodes(void *graph, void **nodes, size_t *count)
{
	*count = 1;
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags)
{
	*out = malloc(1);
	return result(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaGraphInstantiate(void **out, void *graph, unsigned long long flags)
{
	return cudaGraphInstantiateWithFlags(out, graph, flags);
}

cudaError_t cudaGraphDestroy(void *graph)
{
	free(graph);
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(void *graph)
{
	free(graph);
	return cudaSuccess;
}

/* ---- events */

cudaError_t cudaEventCreateWithFlags(void **out, unsigned int flags)
{
	*out = malloc(1);
	return result(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(void **out)
{
	return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(void *event)
{
	free(event);
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, void *from, void *to)
{
	*milliseconds = 0;
	return cudaSuccess;
}

/* ---- kernels */

typedef struct {
	unsigned int x, y, z;
} dim3;

static __thread struct {
	dim3 grid, block;
	size_t shared; /* bytes */
	void *stream;
} configuration;

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
	configuration.grid = grid;
	configuration.block = block;
	configuration.shared = shared;
	configuration.stream = stream;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream)
{
	*grid = configuration.grid;
	*block = configuration.block;
	*shared = configuration.shared;
	*stream = configuration.stream;
	return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;

	return &handle;
}

struct cudaFuncAttributes {
	size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
	int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
	unsigned char rest[104];
};

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel)
{
	*out = (struct cudaFuncAttributes){
		.maxThreadsPerBlock = 1024, .numRegs = 32, .ptxVersion = 80, .binaryVersion = 80
	};
	return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks)
{
	*blocks = 2;
	return cudaSuccess;
}
