/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* State of a walk up a stack. It lives in task storage: passed through memory, it lets the verifier
 * check each loop and each global function once, on every kernel. */
#pragma once

#include "regs.h"

#include "unwind/tables.h"

#define MAX_FRAMES (MAX_WORDS + MAX_LEFT_OUT) /* of a walk */
#define FRAME_BYTES 128                       /* read of a Python frame at most */
/* Words of stack memory that are read at once, a power of two: a read costs the same at any size.
 */
#define STACK_BUFFER_WORDS 64

struct walk {
	struct stack stack;
	__u64 hash;
	/* Registers of the frame reached */
	__u64 pc;
	__u64 sp;
	__u64 fp;
	__u64 link; /* arm64: link register of the innermost frame, else 0 */
	__u64 slot; /* stack address that pc was read from; 0: from a register. arm64: one in the
		     * frame that pc returns from */
	__u64 leaf[NUM_LEAF_REGISTERS]; /* of the innermost frame */
	enum word_kind kind;            /* of pc */
	bool at_entry; /* the thread enters a function: its frame is not set up yet */
	__u32 steps;   /* frames left so far */
	/* Code at pc, or at the call before it */
	__u64 address;
	struct mapping mapping;
	bool has_table;
	struct table_header table;
	__u64 generation; /* hash that changes with the process's mappings */
	union {
		struct rule rule;
		__u64 packed_rule;
	};
	/* Python, set when the walk first meets the evaluation loop */
	struct python python;
	bool has_python;
	__u64 key; /* thread_pointer() */
	__u64 interpreter;
	__u64 thread;
	__u64 frame;              /* next one to push */
	__u64 before;             /* hash before the run of Python frames */
	__u32 states;             /* thread states that had no frames for it */
	__u64 cached_interpreter; /* where the task's last walk found the thread */
	__u64 cached_thread;
	__u64 buffer[FRAME_BYTES / 8]; /* Python frame */
	__u32 now;                     /* 2^10 ns, CLOCK_MONOTONIC */
	__u32 cursor;                  /* word of the stack that is next */
	/* Stack memory read last; start 0: none */
	__u64 stack_buffer_start;
	__u64 stack_buffer[STACK_BUFFER_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct walk);
} walks SEC(".maps");

/* Captured stacks by how they end, and by the problem with Python. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NUM_STACK_ENDS);
	__type(key, enum stack_end);
	__type(value, __u64);
} stack_ends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NUM_PYTHON_ERRORS);
	__type(key, enum python_error);
	__type(value, __u64);
} python_errors SEC(".maps");

/* Adds a value to a hash. It is symmetric in both: one of the two numbers must be a hash already.
 * tracer/python has the same function. */
static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
	return hash ^ (hash >> 29);
}

/* Start of the hash of a stack, and of a site. It is random: a process that knew it could choose
 * addresses and registers so that it has the hash of another one, whose stack is lost then.
 */
const volatile __u64 stack_seed = 0;

static __always_inline bool read_user(void *to, __u32 size, __u64 address)
{
	return bpf_probe_read_user(to, size, (void *)address) == 0;
}

static __always_inline bool read_word(__u64 *to, __u64 address)
{
	return read_user(to, sizeof(*to), address);
}

/* Reads a word of the stack and, unless `second` is NULL, the next one. */
static __always_inline bool read_stack(struct walk *walk, __u64 address, __u64 *first,
				       __u64 *second)
{
	__u64 offset = address - walk->stack_buffer_start;
	__u32 index;

	if (address & 7)
		return read_word(first, address) && (!second || read_word(second, address + 8));

	if (!walk->stack_buffer_start || offset > sizeof(walk->stack_buffer) - 16) {
		offset = 0;
		walk->stack_buffer_start = address;
		if (!read_user(walk->stack_buffer, sizeof(walk->stack_buffer),
			       address)) { /* end of the stack */
			walk->stack_buffer_start = 0;
			return read_word(first, address) &&
			       (!second || read_word(second, address + 8));
		}
	}

	index = offset / 8;
	*first = walk->stack_buffer[index & (STACK_BUFFER_WORDS - 1)];
	if (second)
		*second = walk->stack_buffer[(index + 1) & (STACK_BUFFER_WORDS - 1)];
	return true;
}

/* Returns the index in `words` of the i-th word of a stack, which is the next one to be written if
 * i is its length. */
static __always_inline __u32 word_index(const struct stack *stack, __u32 i)
{
	if (!stack->left_out || i < stack->tail)
		return i;
	i += stack->oldest - stack->tail;
	return i < MAX_WORDS ? i : i - MAX_WORDS + stack->tail;
}

/* Finds the first frame behind HEAD_WORDS words, where the ring will begin. The index stays in
 * memory: the verifier would follow each value of a register. */
static __always_inline void start_ring(struct stack *stack)
{
	stack->tail = 0;
	for (int i = 0; i < HEAD_WORDS; i++) {
		__u32 at = *(volatile __u32 *)&stack->tail;

		if (at >= HEAD_WORDS)
			break;
		stack->tail = at + (stack->words[at] >> WORD_KIND_SHIFT == WORD_PYTHON ? 2 : 1);
	}
	stack->oldest = stack->tail;
}

/* Leaves out the oldest frame of the ring. */
static __always_inline void leave_out_frame(struct stack *stack)
{
	__u32 oldest = stack->oldest;
	__u32 words = 1;

	if (oldest < MAX_WORDS && stack->words[oldest] >> WORD_KIND_SHIFT == WORD_PYTHON)
		words = 2;

	oldest += words;
	stack->oldest = oldest < MAX_WORDS ? oldest : oldest - MAX_WORDS + stack->tail;
	stack->length -= words;
	stack->left_out++;
}

/* Leaves out frames of the middle, until there is room for the words of a frame. Returns 0 if too
 * many have been. */
__attribute__((noinline)) int shorten_stack(struct walk *walk, __u32 words)
{
	if (!walk)
		return 0;
	if (!walk->stack.left_out)
		start_ring(&walk->stack);

	for (int i = 0; i < 2 && walk->stack.length + words > MAX_WORDS; i++)
		leave_out_frame(&walk->stack);
	if (walk->stack.left_out < MAX_LEFT_OUT)
		return 1;
	walk->stack.end = END_LIMIT;
	return 0;
}

/* Makes room for the words of a frame. Returns false if the stack has too many. */
static __always_inline bool make_room(struct walk *walk, __u32 words)
{
	return walk->stack.length + words <= MAX_WORDS || shorten_stack(walk, words);
}

/* Appends a word to the stack, which has room for it. */
static __always_inline void push_word(struct walk *walk, __u64 word)
{
	__u32 index = word_index(&walk->stack, walk->stack.length);

	if (index >= MAX_WORDS)
		return;

	walk->stack.words[index] = word;
	walk->stack.length++;
	walk->hash = mix(walk->hash, word);
}

/* Returns the address in a word of a stack. */
static __always_inline __u64 word_address(__u64 word)
{
	return word & ((1ULL << WORD_KIND_SHIFT) - 1);
}

/* Returns a word of a stack. */
static __always_inline __u64 make_word(enum word_kind kind, __u64 address)
{
	return (__u64)kind << WORD_KIND_SHIFT | word_address(address);
}

/* Appends the native frame reached. Returns false if the stack has too many. */
static __always_inline bool push_frame(struct walk *walk)
{
	if (!make_room(walk, 1))
		return false;
	push_word(walk, make_word(walk->kind, walk->pc));
	return true;
}

/* Ends the walk, for use as `return end_walk(...)`. */
static __always_inline int end_walk(struct walk *walk, enum stack_end why)
{
	walk->stack.end = why;
	return 1;
}

/* Sends a request to user space, unless it has been sent already. */
static __always_inline void send_request(enum event_kind kind, __u32 tgid, __u32 key, __u64 start)
{
	struct event *event;

	if (bpf_map_lookup_elem(&requests, &key) ||
	    bpf_map_update_elem(&requests, &key, &key, BPF_NOEXIST))
		return;

	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		bpf_map_delete_elem(&requests, &key);
		return;
	}

	__builtin_memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->tgid = tgid;
	event->start = start;
	bpf_ringbuf_submit(event, urgent_wakeup());
}

/* Requests the unwind table of the mapping reached. */
static __always_inline void request_table(struct walk *walk)
{
	send_request(EVENT_TABLE_NEEDED, walk->stack.tgid, ~walk->mapping.table,
		     walk->mapping.table);
}

/* Requests that user space reads the process's mappings again. */
static __always_inline void request_mappings(struct walk *walk)
{
	send_request(EVENT_UNMAPPED, walk->stack.tgid, walk->stack.tgid, walk->address);
}
