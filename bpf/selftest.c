//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Functions of the headers as programs that selftest_test.go runs. Not part of allocscope. */
#include "types.h"

#include "bpf_helpers.h"

/* The state of a thread, as on kernels that refuse it now and then. */
static __always_inline void *refuse_storage(void)
{
	return NULL;
}

#define bpf_task_storage_get(...) refuse_storage()

#include "source/cuda.bpf.h"
#include "source/heap.bpf.h"

struct arithmetic {
	__u64 a;
	__u64 b;
	__u64 result;
};

SEC("syscall")
int run_negative_log(struct arithmetic *ctx)
{
	ctx->result = negative_log((__u32)ctx->a);
	return 0;
}

SEC("syscall")
int run_draw(struct arithmetic *ctx)
{
	ctx->result = draw_exponential(ctx->a);
	return 0;
}

SEC("syscall")
int run_product(struct arithmetic *ctx)
{
	ctx->result = product(ctx->a, ctx->b);
	return 0;
}

SEC("syscall")
int run_size_class(struct arithmetic *ctx)
{
	ctx->result = size_class(ctx->a);
	return 0;
}

/* Returns of calls of a traced process whose thread has no state. */
SEC("syscall")
int run_returns_without_state(struct arithmetic *ctx)
{
	struct pt_regs regs = {};

	heap_return(&regs);
	gpu_return(&regs, 0);
	return 0;
}

SEC("syscall")
int run_is_thread(struct arithmetic *ctx)
{
	ctx->result = is_thread(ctx->a, ctx->b);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} test_walks SEC(".maps");

/* Two frames in greenlet's library, after the error `a`. The thread has no more Python frames. If
 * `b` is the address of an interpreter's address, its thread is still to be found there. */
SEC("syscall")
int run_begins_greenlet(struct arithmetic *ctx)
{
	struct walk *walk = bpf_map_lookup_elem(&test_walks, &(__u32){ 0 });

	if (!walk)
		return 1;
	walk->has_python = true;
	walk->stack.python = ctx->a;
	walk->python.interpreters = ctx->b;
	walk->thread = !ctx->b;
	walk->frame = 0;
	ctx->result = begins_greenlet(walk);
	ctx->result |= begins_greenlet(walk);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
