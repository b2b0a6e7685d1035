/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The state of a walk up a stack. It lives in task storage: loops and global functions pass it on through memory, so
 * that the verifier sees each of them once, on every kernel. */
#pragma once

#include "regs.h"
#include "unwind/tables.h"

#define FRAME_BYTES 128 /* at most so much of a Python frame is read */
#define WINDOW_WORDS 64 /* of stack read at a time, a power of two: reading has its price whatever the size */

struct walk {
	struct stack stack;
	__u64 hash;
	/* Registers of the frame reached. */
	__u64 pc;
	__u64 sp;
	__u64 fp;
	__u64 link; /* arm64: link register where the thread stands, else 0 */
	__u64 slot; /* where pc was read from, 0: from no place in the stack */
	__u64 leaf[LEAF_REGISTERS];
	enum word_kind kind; /* of pc */
	bool at_entry;       /* the thread stands where stack and frame pointer are as at the entry of a function */
	__u32 steps;
	/* Code that pc, or the call before it, lies in. */
	__u64 address;
	struct mapping mapping;
	bool has_table;
	struct table_header table;
	__u64 generation; /* of the process's mappings, as a hash */
	union {
		struct rule rule;
		__u64 packed_rule;
	};
	/* Python: set when the evaluation loop is first met. */
	struct python python;
	bool has_python;
	__u64 key;
	__u64 interpreter;
	__u64 thread;
	__u64 frame;            /* the next to be told */
	__u64 kept_interpreter; /* where the thread was found by the last walk */
	__u64 kept_thread;
	__u64 buffer[FRAME_BYTES / 8];
	__u32 now; /* 2^10 ns */
	/* Stack memory that has been read. */
	__u64 window_start;
	__u64 window[WINDOW_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct walk);
} walks SEC(".maps");

/* Stacks taken, by how they ended, and by what went wrong with Python. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STACK_ENDS);
	__type(key, enum stack_end);
	__type(value, __u64);
} stack_ends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PYTHON_ERRORS);
	__type(key, enum python_error);
	__type(value, __u64);
} python_errors SEC(".maps");

/* Joins a value to a hash. It tells neither from the other: of two numbers, one is to be a hash already. */
static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
	return hash ^ (hash >> 29);
}

static __always_inline bool read_user(void *to, __u32 size, __u64 address)
{
	return bpf_probe_read_user(to, size, (void *)address) == 0;
}

static __always_inline bool read_word(__u64 *to, __u64 address)
{
	return read_user(to, sizeof(*to), address);
}

/* Reads a word of the stack, and the next one unless `second` is NULL. */
static __always_inline bool read_stack(struct walk *walk, __u64 address, __u64 *first, __u64 *second)
{
	__u64 offset = address - walk->window_start;
	__u32 index;

	if (address & 7)
		return read_word(first, address) && (!second || read_word(second, address + 8));
	if (!walk->window_start || offset > sizeof(walk->window) - 16) {
		offset = 0;
		walk->window_start = address;
		if (!read_user(walk->window, sizeof(walk->window), address)) { /* the stack ends there, if it is one */
			walk->window_start = 0;
			return read_word(first, address) && (!second || read_word(second, address + 8));
		}
	}
	index = offset / 8;
	*first = walk->window[index & (WINDOW_WORDS - 1)];
	if (second)
		*second = walk->window[(index + 1) & (WINDOW_WORDS - 1)];
	return true;
}

/* Adds a word to the stack; false: it is full. */
static __always_inline bool push(struct walk *walk, __u64 word)
{
	__u32 length = walk->stack.length;

	if (length >= MAX_WORDS) {
		walk->stack.end = END_LIMIT;
		return false;
	}
	walk->stack.words[length] = word;
	walk->stack.length = length + 1;
	walk->hash = mix(walk->hash, word);
	return true;
}

static __always_inline __u64 word_of(enum word_kind kind, __u64 address)
{
	return (__u64)kind << 56 | (address & ((1ULL << 56) - 1));
}

/* Ends a stack. */
static __always_inline int stop(struct walk *walk, enum stack_end why)
{
	walk->stack.end = why;
	return 1;
}

/* Asks user space for something, unless that has been done. */
static __always_inline void ask(struct walk *walk, enum notice_kind kind, __u32 key, __u64 start)
{
	struct notice *notice;

	if (bpf_map_lookup_elem(&asked, &key) || bpf_map_update_elem(&asked, &key, &key, BPF_NOEXIST))
		return;
	notice = bpf_ringbuf_reserve(&notices, sizeof(*notice), 0);
	if (!notice) {
		bpf_map_delete_elem(&asked, &key);
		return;
	}
	__builtin_memset(notice, 0, sizeof(*notice));
	notice->kind = kind;
	notice->tgid = walk->stack.tgid;
	notice->start = start;
	bpf_ringbuf_submit(notice, NOTICE_URGENT);
}
