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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
