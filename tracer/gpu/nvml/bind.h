#include <dlfcn.h>
#include <stddef.h>

/* A call of NVML, as calls.S declares it. */
struct nvml_call {
	void *address;
	const char *name; /* NULL: end of the list */
};

extern struct nvml_call nvml_calls[] __attribute__((visibility("hidden")));

/* Binds the calls to the library, as far as it has them. */
static inline void bind_nvml(void *library)
{
	for (struct nvml_call *call = nvml_calls; call->name; call++) {
		void *address = dlsym(library, call->name);

		if (address)
			call->address = address;
	}
}
