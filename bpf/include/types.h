/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the kernel side and the Go side share. bpf2go emits the structs and enums to Go (-type), so that
 * each is declared once, here. */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* How an allocator function takes its arguments. */
enum call_form {
	CALL_NONE,
	CALL_MALLOC,         /* malloc(size): calls no other probed function */
	CALL_VALLOC,         /* valloc(size), pvalloc(size): may call another probed function */
	CALL_CALLOC,         /* calloc(n, size) */
	CALL_REALLOC,        /* realloc(pointer, size) */
	CALL_REALLOCARRAY,   /* reallocarray(pointer, n, size) */
	CALL_POSIX_MEMALIGN, /* posix_memalign(&pointer, alignment, size) */
	CALL_MEMALIGN,       /* memalign(alignment, size), aligned_alloc(alignment, size), mi_heap_malloc(heap, size) */
	CALL_FREE,           /* free(pointer) */
	CALL_REALLOCF,       /* reallocf(pointer, size): realloc that frees what it cannot enlarge */
	CALL_XALLOCX,        /* xallocx(pointer, size, extra, flags): changes the size in place, returns the real one */
	CALL_HEAP_CALLOC,    /* mi_heap_calloc(heap, n, size) */
	CALL_HEAP_REALLOC,   /* mi_heap_realloc(heap, pointer, size) */
	CALL_HEAP_REALLOCF,  /* mi_heap_reallocf(heap, pointer, size) */
	CALL_HEAP_REALLOCARRAY, /* mi_heap_reallocn(heap, pointer, n, size) */
	CALL_EXIT,              /* no call, but an instruction that returns from one with COOKIE_THROWS */
	CALL_ALLOC_CPU,         /* alloc_cpu(size): asks a function with COOKIE_ALIGNED for it, and may throw */
	/* of CUDA's driver, all of which return 0 where they have done it */
	CALL_CUDA_ALLOCATE,   /* cuMemAlloc(&address, size) and its relatives */
	CALL_CUDA_PITCH,      /* cuMemAllocPitch(&address, &pitch, width, height, element): pitch * height bytes */
	CALL_CUDA_CREATE,     /* cuMemCreate(&handle, size, &properties, flags) */
	CALL_CUDA_PIN,        /* cuMemHostAlloc(&address, size, flags), cuMemAllocHost(&address, size) */
	CALL_CUDA_REGISTER,   /* cuMemHostRegister(address, size, flags); the last one that allocates */
	CALL_CUDA_RETAIN,     /* cuMemRetainAllocationHandle(&handle, address): it has to be released once more */
	CALL_CUDA_MAP,        /* cuMemMap(address, size, offset, handle, flags): it is kept until that is undone */
	CALL_CUDA_UNMAP,      /* cuMemUnmap(address, size) */
	CALL_CUDA_FREE,       /* cuMemFree(address), cuMemFreeHost(address) and relatives */
	CALL_CUDA_RELEASE,    /* cuMemRelease(handle) */
	CALL_CUDA_UNREGISTER, /* cuMemHostUnregister(address) */
};

/* The attach cookie of a probe: a call_form, and what else is known of the site. */
enum probe_cookie {
	COOKIE_NONE,
	COOKIE_FORM = 0xff,
	COOKIE_STEPPED = 1 << 8,        /* the kernel single-steps the instruction, at several times the price */
	COOKIE_TENSOR = 1 << 9,         /* the probe is of source tensor */
	COOKIE_THROWS = 1 << 10,        /* the function may throw: a return probe would stop the search for a handler */
	COOKIE_CALLED = 1 << 11,        /* other probed functions call this one */
	COOKIE_ALIGNED = 1 << 12,       /* the function gives aligned memory: alloc_cpu may ask it */
	COOKIE_FUNCTION = 0xffff << 16, /* the function's number: no two of an allocator have the same */
};

/* Whether a process is traced; absent from `targets`: not ours. */
enum target_state {
	TARGET_WAITING, /* probes are being attached: what they see is not counted yet */
	TARGET_TRACED,
	TARGET_GONE, /* has executed another program: its memory is no longer what was traced */
};

/* Events seen and losses, each with its reason: indices of `counters`. */
enum counter {
	COUNT_ALLOCATIONS,     /* calls that ask the allocator for memory, nested ones not counted */
	COUNT_FREES,           /* free() of a pointer other than NULL */
	COUNT_FREES_UNTRACKED, /* of those: older than the attach, or never sampled */
	COUNT_SAMPLES,         /* allocations taken into the live map */
	COUNT_FAILED,          /* sampled calls that returned no memory */
	COUNT_MAPPING_CALLS,   /* mmap, munmap, mremap, brk, madvise that took effect */
	COUNT_FAULTS,          /* page faults that were sampled */
	COUNT_ENTRIES,         /* probes of sources heap and tensor that were run at an entry, whatever came of it */
	COUNT_STEPPED,         /* of those: at instructions that the kernel single-steps */
	COUNT_TENSOR_ENTRIES,  /* those of source tensor, also where one of heap at the same place has been counted */
	COUNT_RETURNS,         /* probes of both sources that were run at a return */
	COUNT_WALK_NS,         /* ns that walking stacks took for sources heap and tensor */
	COUNT_KERNEL_WALK_NS,  /* the same for the kernel's own events, and for calls of CUDA's driver */
	COUNT_DEVICE_CALLS,    /* calls of CUDA's driver that allocate or free, nested ones not counted */
	COUNT_BLOCKS,          /* blocks of torch's allocator for CUDA that were handed out or came back */
	COUNT_BLOCK_NS,        /* ns that this took, without the traps */
	COUNT_BLOCK_WALK_NS,   /* of these: walking stacks */
	DROP_LIVE_FULL,        /* allocations not followed: the live map was full */
	DROP_FAULTS_FULL,      /* sampled page faults not followed: the map was full */
	DROP_TALLY_FULL,       /* allocations missing from alloc_*: the tally was full */
	DROP_NOTICES,          /* notices lost: the ring buffer was full */
	DROP_THREAD_STATE,     /* events lost: no per-thread storage */
	DROP_NO_MEMORY,        /* tallies not kept: the kernel had no memory at that moment */
	DROP_OUT_POINTER,      /* results that a call leaves in memory and that could not be read */
	DROP_MISSED_RETURN,    /* calls whose return was never seen */
	DROP_MISSED_FREE,      /* addresses handed out again that were still in the live map */
	DROP_DEVICE_FULL,      /* device memory not followed: the map was full */
	COUNTERS,
};

/* What a sampled allocation belongs to. */
enum allocation_kind {
	KIND_HEAP,
	KIND_TENSOR,     /* of the heap, too: what torch allocates for tensors */
	KIND_BLOCK,      /* on a GPU: a block of torch's allocator */
	KIND_SEGMENT,    /* on a GPU: from the driver */
	KIND_PINNED,     /* of the host, allocated by the driver */
	KIND_REGISTERED, /* of the host, allocated by others and pinned by the driver */
};

/* Key of `live`, of `tensors` and, with the address of a page, of `faults`. */
struct address {
	__u64 address;
	__u32 tgid;
	__u32 reserved;
};

/* Value of `live` and `tensors`: one sampled allocation that has not been freed. */
struct allocation {
	__u64 size;     /* bytes asked for */
	__u64 born;     /* ns, CLOCK_MONOTONIC, when the call returned */
	__u64 stack;    /* stack ID; 0: there is none */
	__u32 interval; /* mean bytes between samples in force when it was taken; 1: every allocation */
	enum allocation_kind kind;
};

/* Value of `faults`: the newest page fault that was sampled there. */
struct fault {
	__u64 stack;  /* stack ID; 0: there is none */
	__u64 time;   /* ns, CLOCK_MONOTONIC */
	__u32 period; /* page faults that it stands for */
	__u32 copied; /* 1: on a page that was there: a write to what is shared, which copies it */
};

/* What tells device memory within a process. */
enum device_space {
	SPACE_ADDRESS,    /* its address, as the driver has given it */
	SPACE_HANDLE,     /* the driver's handle: it has no address of its own */
	SPACE_REGISTERED, /* its address, and others have allocated it */
	SPACE_MAPPING,    /* the address at which the memory of a handle is */
	SPACE_BLOCK,      /* its address, in a segment of torch's allocator */
};

/* Key of `device_live`. */
struct device_address {
	__u64 address; /* or handle */
	__u32 tgid;
	enum device_space space;
};

/* Value of `device_live`: what has been allocated on a GPU, or pinned for it, and not been freed. */
struct device_memory {
	__u64 size;     /* bytes */
	__u64 born;     /* ns, CLOCK_MONOTONIC, when the call returned */
	__u64 stack;    /* stack ID; 0: there is none */
	__u32 interval; /* as that of an allocation; 1 for what is from the driver */
	enum allocation_kind kind;
	__u32 gpu;        /* as CUDA counts in the process, plus 1; 0: not known */
	__u32 references; /* how often it has to be released or unmapped */
};

/* Value of `device_mappings`: at an address of the device's there is the memory of a handle. */
struct device_mapping {
	__u64 handle;
	__u64 size; /* bytes */
};

/* Key of `cuda_totals`. */
struct cuda_device {
	__u32 tgid;
	__u32 gpu; /* as CUDA counts in the process, plus 1 */
};

/* Value of `cuda_totals`: what torch's allocator tells of itself. */
struct cuda_total {
	__u64 allocated; /* bytes in blocks that are handed out */
	__u64 reserved;  /* bytes in segments */
	__u64 time;      /* ns, CLOCK_MONOTONIC */
};

/* Key of `tally`: sizes of one class differ by less than a quarter, so that weights can be applied later. */
struct tally_key {
	__u64 stack;
	__u32 tgid;
	__u32 interval;
	enum allocation_kind kind;
	__u16 size_class; /* 4 log2(size) */
	__u16 gpu;        /* as that of device_memory */
};

/* Value of `tally`: all sampled allocations since the attach, freed or not. */
struct tally {
	__u64 objects;
	__u64 bytes;
};

/* Value of `steps`. */
struct step_count {
	__u64 calls;
	__u64 told; /* ns, CLOCK_MONOTONIC, of the last notice */
};

enum notice_kind {
	NOTICE_STACK, /* a stack seen for the first time: struct stack */
	NOTICE_CODE,  /* a Python code object seen for the first time: struct code */
	NOTICE_MMAP,
	NOTICE_MUNMAP,
	NOTICE_MREMAP,
	NOTICE_BRK,
	NOTICE_MADVISE,
	NOTICE_EXEC,     /* the process has executed another program */
	NOTICE_UNMAPPED, /* code was met that is in no mapping known */
	NOTICE_STEP,     /* a step of training began: `length` counts them */
	NOTICE_WANTED,   /* code was met whose unwind table, whose index `start` is, has not been made yet */
};

/* What else the ring buffer carries. */
struct notice {
	enum notice_kind kind;
	__u32 tgid;
	__u64 time;         /* ns, CLOCK_MONOTONIC */
	__u64 stack;        /* stack ID */
	__u64 start;        /* address that the call worked on; brk: the new break */
	__u64 length;       /* bytes; steps so far */
	__u64 old_start;    /* mremap */
	__u64 old_length;   /* mremap */
	__u32 protection;   /* PROT_* of mmap; the advice of madvise */
	__u32 flags;        /* MAP_* or MREMAP_* */
	__s32 descriptor;   /* mmap: file descriptor, -1 for anonymous memory */
	__u32 by_allocator; /* 1: called from inside a probed allocator function */
	__u64 malloc_slot; /* what stands in the place of the last malloc's return address, which the stack has not left
			    */
};
