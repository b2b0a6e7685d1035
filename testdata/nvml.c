/* A stand-in for libnvidia-ml.so.1 that returns the values of a file, the path of which is in
 * NVML_STUB. Every call reads
   the file again, so that the answers change between readings. Lines of it, `GPU` being `0`, or `0.1` for the MIG
   device 1 of GPU 0:

       init 9                       the result of nvmlInit (0)
       all 1                        the result of every other call (0)
       version 570.1                of the driver
       count 2                      GPUs (0)
       handle.GPU 15                the result of the call for the handle (0)
       name.GPU text                (GPU-name)
       mig.GPU 1                    the GPU is in MIG mode; its instances are 0 and 2
       memory.GPU used total        bytes; `memory.GPU !15`: the call returns 15
       compute.GPU 7:4096 8:-1      processes with their bytes; graphics and mps alike, and `!4` as above

   The header is NVIDIA's own. OLD: without the calls that came after the first version of NVML. WITHOUT_PROCESSES,
   WITHOUT_INIT: without those. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 80
#define SLOTS 9

struct nvmlDevice_st {
	int gpu, slot; /* slot -1: the whole GPU */
};

static struct nvmlDevice_st devices[GPUS][SLOTS + 1];

/* lookup finds the line of a key and gives the rest of it. */
static int lookup(const char *key, char *value, size_t size)
{
	char line[1 << 16];
	size_t length = strlen(key);
	int found = 0;
	FILE *file = fopen(getenv("NVML_STUB"), "r");
	if (!file)
		abort();
	while (!found && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == 0)) {
			snprintf(value, size, "%s", line[length] ? line + length + 1 : "");
			found = 1;
		}
	}
	fclose(file);
	return found;
}

static long number(const char *key, long otherwise)
{
	char value[64];
	return lookup(key, value, sizeof value) ? atol(value) : otherwise;
}

/* key is a name with a device. */
static const char *key(const char *name, nvmlDevice_t device, char *text, size_t size)
{
	struct nvmlDevice_st *d = device.handle;
	if (d->slot < 0)
		snprintf(text, size, "%s.%d", name, d->gpu);
	else
		snprintf(text, size, "%s.%d.%d", name, d->gpu, d->slot);
	return text;
}

static nvmlReturn_t all(void)
{
	return number("all", NVML_SUCCESS);
}

static nvmlReturn_t handle(const char *name, int gpu, int slot, nvmlDevice_t *device)
{
	char text[64];
	if (gpu >= GPUS || slot >= SLOTS)
		return NVML_ERROR_INVALID_ARGUMENT;
	device->handle = &devices[gpu][slot + 1];
	*device->handle = (struct nvmlDevice_st){ gpu, slot };
	return number(key(name, *device, text, sizeof text), all());
}

/* memory reads `used total`. */
static nvmlReturn_t memory(nvmlDevice_t device, unsigned long long *used, unsigned long long *total)
{
	char text[64], value[64];
	if (all())
		return all();
	if (!lookup(key("memory", device, text, sizeof text), value, sizeof value))
		return NVML_ERROR_NOT_SUPPORTED;
	if (value[0] == '!')
		return atoi(value + 1);
	sscanf(value, "%llu %llu", used, total);
	return NVML_SUCCESS;
}

/* processes reads `pid:bytes ...`; put stores one. */
static nvmlReturn_t processes(const char *list, nvmlDevice_t device, unsigned int *count, void *infos,
			      void (*put)(void *infos, unsigned int i, unsigned int pid, unsigned long long bytes))
{
	static __thread char value[1 << 16];
	char text[64];
	unsigned int room = *count, pid;
	long long bytes;
	if (all())
		return all();
	*count = 0;
	if (!lookup(key(list, device, text, sizeof text), value, sizeof value))
		return NVML_SUCCESS;
	if (value[0] == '!')
		return atoi(value + 1);
	for (char *word = value; sscanf(word, "%u:%lld", &pid, &bytes) == 2;
	     word += strcspn(word, " "), word += *word == ' ') {
		if (*count < room)
			put(infos, *count, pid, bytes);
		++*count;
	}
	return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static void put_v1(void *infos, unsigned int i, unsigned int pid, unsigned long long bytes)
{
	((nvmlProcessInfo_v1_t *)infos)[i] = (nvmlProcessInfo_v1_t){ pid, bytes };
}

#ifndef WITHOUT_INIT
nvmlReturn_t nvmlInit(void)
{
	return number("init", NVML_SUCCESS);
}

nvmlReturn_t nvmlShutdown(void)
{
	return all();
}
#endif

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	char value[64] = "570.1";
	lookup("version", value, sizeof value);
	snprintf(version, length, "%s", value);
	return all();
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
	*count = number("count", 0);
	return all();
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return handle("handle", index, -1, device);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct nvmlDevice_st *d = device.handle;
	if (d->slot < 0)
		snprintf(uuid, length, "GPU-%d", d->gpu);
	else
		snprintf(uuid, length, "MIG-%d-%d", d->gpu, d->slot);
	return all();
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	char text[64], value[512] = "GPU-name";
	lookup(key("name", device, text, sizeof text), value, sizeof value);
	snprintf(name, length, "%s", value);
	return all();
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
	return memory(device, &info->used, &info->total);
}

#ifndef WITHOUT_PROCESSES
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)
{
	return processes("compute", device, count, infos, put_v1);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
						   nvmlProcessInfo_v1_t *infos)
{
	return processes("graphics", device, count, infos, put_v1);
}
#endif

#ifndef OLD
#ifndef WITHOUT_INIT
nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInit();
}
#endif

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	return nvmlDeviceGetCount(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex(index, device);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
	if (info->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return memory(device, &info->used, &info->total);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	char text[64];
	long mode = number(key("mig", device, text, sizeof text), -1);
	*current = *pending = mode == 1;
	return mode < 0 ? NVML_ERROR_NOT_SUPPORTED : all();
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	*count = 7;
	return all();
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance)
{
	if (index == 1 || index > 2) /* slots are not filled in turn */
		return NVML_ERROR_NOT_FOUND;
	return handle("handle", ((struct nvmlDevice_st *)device.handle)->gpu, index, instance);
}

#ifndef WITHOUT_PROCESSES
static void put(void *infos, unsigned int i, unsigned int pid, unsigned long long bytes)
{
	((nvmlProcessInfo_t *)infos)[i] = (nvmlProcessInfo_t){ pid, bytes, ~0u, ~0u };
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	return processes("compute", device, count, infos, put);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
						      nvmlProcessInfo_t *infos)
{
	return processes("graphics", device, count, infos, put);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
							nvmlProcessInfo_t *infos)
{
	return processes("mps", device, count, infos, put);
}
#endif
#endif
