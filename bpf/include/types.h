/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Types that the kernel side and the Go side share. bpf2go emits the structs and enums to Go
 * (generate.sh), so each is declared once, here and in stack_types.h. */
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

/* Limits and bit positions. Go sees them as untyped constants. */
enum constant {
	MAX_WORDS = 320,      /* words of a stack: a native frame is one, a Python frame two */
	HEAD_WORDS = 160,     /* of these, words of the innermost frames of a longer stack */
	MAX_LEFT_OUT = 1024,  /* frames of its middle that may be left out */
	MAX_MAPPINGS = 4096,  /* executable mappings per process */
	MAX_TABLES = 16384,   /* files with unwind tables */
	PAGE_BITS = 10,       /* address bits within a page of an unwind table's index */
	WORD_KIND_SHIFT = 56, /* bit position of enum word_kind in a word of a stack */
	COOKIE_FUNCTION_SHIFT = 16, /* bit position of COOKIE_FUNCTION */
	IDENTITY_POINTERS = 4,      /* pointers of a code object that its fingerprint covers */
	CONTENT_WORDS = 5,          /* words of a line table or file name that it covers */
	WAKEUP_PERIOD_MS = 50,      /* between two wakeups of the reader of the ring buffer */
	REQUEST_NEW_CODE = 1 << 30, /* bit beside the tgid in a key of `requests` */
	NO_INDIRECTION =
		0xffff, /* thread_frame_indirect: the thread state has the pointer itself */
};

/* How an allocator function takes its arguments. */
enum call_form {
	CALL_NONE,
	CALL_MALLOC,            /* malloc(size): calls no other probed function */
	CALL_VALLOC,            /* valloc(size), pvalloc(size): may call another probed function */
	CALL_CALLOC,            /* calloc(n, size) */
	CALL_REALLOC,           /* realloc(pointer, size) */
	CALL_REALLOCARRAY,      /* reallocarray(pointer, n, size) */
	CALL_POSIX_MEMALIGN,    /* posix_memalign(&pointer, alignment, size) */
	CALL_MEMALIGN,          /* memalign(alignment, size), aligned_alloc(alignment, size),
				 * mi_heap_malloc(heap, size) */
	CALL_FREE,              /* free(pointer) */
	CALL_REALLOCF,          /* reallocf(pointer, size): frees the object if it fails */
	CALL_XALLOCX,           /* xallocx(pointer, size, extra, flags): resizes in place, returns
				 * the real size */
	CALL_HEAP_CALLOC,       /* mi_heap_calloc(heap, n, size) */
	CALL_HEAP_REALLOC,      /* mi_heap_realloc(heap, pointer, size) */
	CALL_HEAP_REALLOCF,     /* mi_heap_reallocf(heap, pointer, size) */
	CALL_HEAP_REALLOCARRAY, /* mi_heap_reallocn(heap, pointer, n, size) */
	CALL_EXIT,        /* no call: an instruction that returns from one with COOKIE_EXITS */
	CALL_EXIT_MEMSET, /* no call: a jump to memset(pointer, 0, size), which returns from
			   * one with COOKIE_EXITS, and its pointer */
	CALL_ALLOC_CPU,   /* alloc_cpu(size): calls a function with COOKIE_ALIGNED, and may
			   * throw */
	/* CUDA driver API. All of them return 0 (CUDA_SUCCESS) on success. */
	CALL_CUDA_ALLOCATE,   /* cuMemAlloc(&address, size) and its variants */
	CALL_CUDA_PITCH,      /* cuMemAllocPitch(&address, &pitch, width, height, element):
			       * pitch * height bytes */
	CALL_CUDA_CREATE,     /* cuMemCreate(&handle, size, &properties, flags) */
	CALL_CUDA_PIN,        /* cuMemHostAlloc(&address, size, flags),
			       * cuMemAllocHost(&address, size) */
	CALL_CUDA_REGISTER,   /* cuMemHostRegister(address, size, flags): the last that allocates */
	CALL_CUDA_RETAIN,     /* cuMemRetainAllocationHandle(&handle, address): takes a reference */
	CALL_CUDA_MAP,        /* cuMemMap(address, size, offset, handle, flags): takes a reference
			       * until cuMemUnmap */
	CALL_CUDA_UNMAP,      /* cuMemUnmap(address, size) */
	CALL_CUDA_FREE,       /* cuMemFree(address), cuMemFreeHost(address) and their variants */
	CALL_CUDA_RELEASE,    /* cuMemRelease(handle) */
	CALL_CUDA_UNREGISTER, /* cuMemHostUnregister(address) */
};

/* Attach cookie of a probe: a call_form, flags, and the number of the function. */
enum probe_cookie {
	COOKIE_NONE,
	COOKIE_FORM = 0xff,
	COOKIE_STEPPED = 1 << 8,  /* the kernel single-steps the instruction: several times the
				   * cost */
	COOKIE_TENSOR = 1 << 9,   /* the probe belongs to source tensor */
	COOKIE_THROWS = 1 << 10,  /* the function may throw: a return probe would stop the search
				   * for a handler */
	COOKIE_CALLED = 1 << 11,  /* other probed functions call this one */
	COOKIE_ALIGNED = 1 << 12, /* the function returns aligned memory: alloc_cpu may call it */
	COOKIE_EXITS = 1 << 13,   /* its return is followed by the instructions that return */
	COOKIE_FUNCTION = 0xffff << COOKIE_FUNCTION_SHIFT, /* number of the function, unique within
							    * its allocator */
};

/* CPU time that one event of a kind takes from the thread that meets it, in ns: the costs that user
 * space has calibrated. */
struct probe_costs {
	__u32 entry;       /* of an allocator function, where the kernel emulates the instruction */
	__u32 stepped;     /* the same where it single-steps */
	__u32 follow;      /* a return that is probed, beside the entry */
	__u32 sample;      /* a sampled allocation, beside its walk */
	__u32 fault;       /* a page fault, sampled or not */
	__u32 mapping;     /* a call that changes the address space, without a walk */
	__u32 driver_call; /* a call of the CUDA driver API, without a walk */
	__u32 block;       /* a report of a block, without a sample and its walk */
	__u32 shim_pair; /* our preloaded library in a malloc and its free; ps; 0: there is none */
};

/* State of a process. A process without an entry in `targets` is not traced. */
enum target_state {
	TARGET_WAITING, /* probes are being attached: their events do not count yet */
	TARGET_TRACED,
	TARGET_GONE, /* has called execve: the traced address space no longer exists */
};

/* Indices of `counters`: events, and losses by reason. */
enum counter {
	COUNT_ALLOCATIONS,     /* allocator calls, nested ones not counted */
	COUNT_FREES,           /* free() of a pointer other than NULL */
	COUNT_FREES_UNTRACKED, /* frees of objects allocated before tracing started, or not
				* sampled */
	COUNT_SAMPLES,         /* allocations added to the live map */
	COUNT_FAILED,          /* sampled calls that returned no memory */
	COUNT_BEGUN,           /* sampled calls that began */
	COUNT_ENDED,           /* sampled calls that returned, or whose return was missed */
	COUNT_SHORTENED,       /* walked stacks whose middle was left out */
	COUNT_LEFT_OUT,        /* frames of these that were left out */
	COUNT_MAPPING_CALLS,   /* mmap, munmap, mremap, madvise that took effect */
	COUNT_SITE_STACKS,     /* mapping calls that took the stack of an earlier call of their
				* site, to save a walk */
	COUNT_NEW_STACKS,      /* stacks sent to user space, which names their frames */
	COUNT_FAULTS,          /* sampled page faults */
	COUNT_ENTRIES,         /* entry probes of sources heap and tensor that ran, ignored ones
				* included */
	COUNT_STEPPED,         /* entry probes at instructions that the kernel single-steps */
	COUNT_TENSOR_ENTRIES,  /* entry probes of source tensor, also where one of source heap at
				* the same instruction has been counted */
	COUNT_RETURNS,         /* return probes of both sources that ran */
	COUNT_WALK_NS,         /* ns spent walking stacks for sources heap and tensor */
	COUNT_KERNEL_WALK_NS,  /* ns spent walking stacks for kernel events and CUDA driver calls */
	COUNT_GPU_CALLS,       /* CUDA driver calls that allocate or free, nested ones not
				* counted */
	COUNT_BLOCKS,          /* blocks that PyTorch's caching allocator handed out or took back */
	COUNT_BLOCK_SAMPLES,   /* blocks added to gpu_live */
	COUNT_BLOCK_WALK_NS,   /* ns spent walking stacks for them */
	COUNT_PRODUCER_CALLS,  /* probes of producers that ran */
	COUNT_PRODUCER_SAMPLES, /* allocations that they added to the live map */
	COUNT_PRODUCER_WALK_NS, /* ns spent walking stacks for them */
	DROP_LIVE_FULL,         /* allocations not tracked: the live map was full */
	DROP_FAULTS_FULL,       /* sampled page faults not kept: the map was full */
	DROP_TALLY_FULL,        /* allocations missing from alloc_*: the tally was full */
	DROP_EVENTS,            /* events lost: the ring buffer was full */
	DROP_THREAD_STATE,      /* calls or returns not followed: no per-thread storage */
	DROP_NO_MEMORY,         /* tallies not kept: the kernel could not allocate the entry */
	DROP_OUT_POINTER,   /* results of calls, or arguments of producers, in unreadable memory */
	DROP_MISSED_RETURN, /* calls whose return was never seen */
	DROP_MISSED_FREE,   /* addresses returned again while still in the live map */
	DROP_GPU_FULL,      /* GPU memory not tracked: the map was full */
	DROP_MAPPING_WALKS, /* mapping calls without a stack: the budget of walks was spent */
	NUM_COUNTERS,
	FIRST_DROP = DROP_LIVE_FULL,
};

/* Tables that targets share. */
enum table {
	TABLE_LIVE,
	TABLE_TENSORS,
	TABLE_STACKS, /* reported_stacks */
	TABLE_EVENTS, /* bytes, and not entries */
	NUM_TABLES,
};

/* A target's share of a table. */
struct share {
	__u64 own;  /* entries that it may have in any case; bytes in a turn of the reader */
	__u64 open; /* entries of all, or unread bytes, below which it may have more */
};

/* Value of `usages`: the events and entries of a target, and its losses. */
struct usage {
	__u64 taken[NUM_TABLES]; /* of TABLE_EVENTS: bytes since the reader's turn `turn` */
	__u64 turn;
	__u64 lost[NUM_COUNTERS - FIRST_DROP]; /* by counter, from FIRST_DROP on */
	__u64 lost_bytes; /* that the allocations which are not tracked represent, at least */
};

/* Entries that user space has deleted. */
struct deletion {
	__u32 tgid;
	enum table table;
	__s64 entries;
};

/* The owner of a sampled allocation. */
enum allocation_kind {
	KIND_HEAP,
	KIND_TENSOR,     /* heap memory that PyTorch allocated for a tensor */
	KIND_BLOCK,      /* GPU memory: a block of PyTorch's caching allocator */
	KIND_SEGMENT,    /* GPU memory allocated by the driver */
	KIND_PINNED,     /* host memory that the driver allocated */
	KIND_REGISTERED, /* host memory of another allocator that the driver pinned */
};

/* Key of `live`, of `tensors` and, with the address of a page, of `faults`. */
struct address {
	__u64 address;
	__u32 tgid;
	__u32 reserved;
};

/* Value of `live` and `tensors`: a sampled allocation that has not been freed. */
struct allocation {
	__u64 size;     /* bytes requested */
	__u64 born;     /* ns, CLOCK_MONOTONIC, when the call returned */
	__u64 stack;    /* stack ID; 0: none */
	__u64 weight;   /* bytes that a producer says it represents; 0: its interval shows that */
	__u32 interval; /* sampling interval in force then, mean bytes; 1: every allocation */
	enum allocation_kind kind;
};

/* Value of `faults`: the latest sampled page fault of a page. */
struct fault {
	__u64 stack;  /* stack ID; 0: none */
	__u64 time;   /* ns, CLOCK_MONOTONIC */
	__u32 period; /* page faults that this one represents */
	__u32 copied; /* 1: a write to a present page, which the kernel copies (copy-on-write) */
};

/* The kind of a gpu_address. */
enum gpu_space {
	SPACE_ADDRESS,    /* address returned by the driver */
	SPACE_HANDLE,     /* handle returned by cuMemCreate: the memory has no address yet */
	SPACE_REGISTERED, /* address of host memory passed to cuMemHostRegister */
	SPACE_MAPPING,    /* address to which cuMemMap mapped a handle */
	SPACE_BLOCK,      /* address of a block within a segment of PyTorch's allocator */
};

/* Key of `gpu_live` and `gpu_mappings`. */
struct gpu_address {
	__u64 address; /* or handle */
	__u32 tgid;
	enum gpu_space space;
};

/* Value of `gpu_live`: memory allocated on a GPU, or pinned for it, and not freed. */
struct gpu_memory {
	__u64 size;     /* bytes */
	__u64 born;     /* ns, CLOCK_MONOTONIC, when the call returned */
	__u64 stack;    /* stack ID; 0: none */
	__u32 interval; /* as in struct allocation; 1 for memory of the driver */
	enum allocation_kind kind;
	__u32 gpu;        /* CUDA's device ordinal in the process, plus 1; 0: unknown */
	__u32 references; /* releases and unmaps that are still to come */
};

/* Value of `gpu_mappings`: the handle that cuMemMap mapped to an address. */
struct gpu_mapping {
	__u64 handle;
	__u64 size; /* bytes */
};

/* Key of `gpu_totals`. */
struct gpu_id {
	__u32 tgid;
	__u32 gpu; /* CUDA's device ordinal in the process, plus 1 */
};

/* Value of `gpu_totals`: totals that PyTorch's caching allocator reports. */
struct gpu_total {
	__u64 allocated; /* bytes in blocks that are handed out */
	__u64 reserved;  /* bytes in segments */
};

/* Key of `tallies`. Sizes of one class differ by less than a quarter, so that weights can be
 * applied later. */
struct tally_key {
	__u64 stack;
	__u32 tgid;
	__u32 interval; /* mean bytes; 0: the tally has the weight, which a producer has given */
	enum allocation_kind kind;
	__u16 size_class; /* 4 log2(size), see size_class() */
	__u16 gpu;        /* as in struct gpu_memory */
};

/* Value of `tallies`: sampled allocations since tracing started, freed ones included. */
struct tally {
	__u64 objects;
	__u64 bytes;
	__u64 weight; /* bytes that they represent, where the interval of the key is 0 */
};

/* Where an argument of a probe is. */
enum operand_kind {
	OPERAND_CONSTANT,
	OPERAND_REGISTER,
	OPERAND_MEMORY, /* at the address in a register, plus `value` */
};

/* An argument of a probe. */
struct operand {
	__s64 value; /* the constant, or the number added to the address */
	enum operand_kind kind;
	__u16 reg;      /* offset of the register in struct pt_regs */
	__u8 size;      /* bytes: 1, 2, 4 or 8 */
	__u8 is_signed; /* 1: its sign is extended */
};

/* Value of `producer_probes`. otel_memory:free has the pointer alone. */
struct producer_probe {
	struct operand pointer, size, weight;
};

/* Value of `steps`. */
struct step_count {
	__u64 calls;
	__u64 reported; /* ns, CLOCK_MONOTONIC, of the last EVENT_STEP */
};

/* Kind of a record in the ring buffer. */
enum event_kind {
	EVENT_STACK, /* new stack: struct stack */
	EVENT_CODE,  /* new Python code object: struct code */
	EVENT_MMAP,
	EVENT_MUNMAP,
	EVENT_MREMAP,
	EVENT_MADVISE,
	EVENT_BRK,           /* the program break moved: `start` is the new one */
	EVENT_EXEC,          /* the process called execve */
	EVENT_OUT_OF_MEMORY, /* the kernel kills the process for want of memory */
	EVENT_UNMAPPED,      /* a walk met code outside all known mappings */
	EVENT_NEW_CODE,      /* the process has mapped code */
	EVENT_STEP,          /* a training step began: `length` is their number so far */
	EVENT_START,        /* a program has started below our preloaded library; `length` 1: a fork
			     * takes its first sample */
	EVENT_TABLE_NEEDED, /* a walk met code whose unwind table is not built: `start` is the
			     * table's index */
};

/* Record of the ring buffer for all kinds but EVENT_STACK and EVENT_CODE. */
struct event {
	enum event_kind kind;
	__u32 tgid;
	__u64 time;         /* ns, CLOCK_MONOTONIC */
	__u64 stack;        /* stack ID */
	__u64 start;        /* address that the call worked on */
	__u64 length;       /* bytes; EVENT_STEP: steps */
	__u64 old_start;    /* mremap */
	__u64 old_length;   /* mremap, bytes */
	__u64 calls;        /* madvise: calls that the event represents */
	__u32 protection;   /* mmap: PROT_* */
	__u32 flags;        /* MAP_* or MREMAP_*; madvise: RELEASE_* */
	__s32 descriptor;   /* mmap: file descriptor; -1: anonymous memory */
	__u32 by_allocator; /* 1: called from within a probed allocator function */
};

/* Value of `recent_mappings`: an mmap that user space has not read yet. */
struct recent_mapping {
	struct event event;
	__u64 cuts; /* `mapping_cuts` when it was made */
};

/* How madvise has released a range. */
enum release_flags {
	RELEASE_LAZY = 1,  /* the pages stay in memory until the kernel needs it (MADV_FREE) */
	RELEASE_HOLES = 2, /* parts of the range were not mapped */
};

/* Key of `released_ranges`. */
struct range {
	__u64 start;
	__u64 length; /* bytes */
	__u32 tgid;
	enum release_flags flags;
};

/* Value of `released_ranges`. */
struct release {
	__u64 calls;
	__u64 time; /* ns, CLOCK_MONOTONIC, of the last one */
};

/* Key of `mapping_pairs`: the data that user space needs about mappings that were gone before it
 * read them. The members are as in struct event. */
struct mapping_pair {
	__u64 stack;
	__u32 tgid;
	__u32 flags;
	__s32 descriptor; /* 0: any file; -1: anonymous memory */
	__u32 by_allocator;
};
