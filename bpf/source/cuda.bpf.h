/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `cuda`: the functions of the CUDA driver API (libcuda.so.1) that allocate, pin and free.
 * They are called rarely, so every call is traced, and followed to its return: a failed call counts
 * for nothing. Freed memory leaves the map at the entry, before the driver can return its address
 * to another thread, and is put back if the call fails. */
#pragma once

#include "attach.h"
#include "call.h"

#include "source/gpu.bpf.h"
#include "source/handle.bpf.h"
#include "unwind/stack.h"

/* cuda.h */
#define PROPERTIES_LOCATION 8 /* offset of `location` in CUmemAllocationProp: type, then id */
#define LOCATION_DEVICE 1     /* CU_MEM_LOCATION_TYPE_DEVICE */

/* Returns whether a call that begins is part of the one that the thread is in: the driver makes it,
 * or has reached it by a tail call. */
static __always_inline bool is_inner_gpu_call(struct gpu_call *call, __u64 sp,
					      enum probe_cookie cookie)
{
	if (!call->sp)
		return false;
	if ((sp == call->sp ? cookie != call->cookie
			    : sp < call->sp && call->sp - sp < NESTED_STACK_BYTES) &&
	    call->nested++ < MAX_NESTED_CALLS)
		return true;

	lose_current(DROP_MISSED_RETURN);
	return false;
}

/* Reads where cuMemCreate is to allocate: on which GPU, or in host memory. */
static __always_inline void read_location(struct gpu_memory *memory, __u64 properties)
{
	__u32 location[2] = {};

	if (bpf_probe_read_user(location, sizeof(location),
				(void *)(properties + PROPERTIES_LOCATION)))
		return;

	if (location[0] == LOCATION_DEVICE)
		memory->gpu = location[1] + 1;
	else
		memory->kind = KIND_PINNED;
}

/* Reads the arguments of a call that begins. */
static __always_inline void read_gpu_arguments(struct gpu_call *call, struct pt_regs *regs)
{
	call->slot = REGS_ARG1(regs);
	call->size = REGS_ARG2(regs);
	call->memory.kind = KIND_SEGMENT;
	call->memory.interval = 1;

	switch (call->cookie & COOKIE_FORM) {
	case CALL_CUDA_PITCH:
		call->pitch_slot = REGS_ARG2(regs);
		call->size = REGS_ARG4(regs);
		break;
	case CALL_CUDA_CREATE:
		read_location(&call->memory, REGS_ARG3(regs));
		call->key.space = SPACE_HANDLE;
		break;
	case CALL_CUDA_RETAIN:
		call->key.space = SPACE_HANDLE;
		break;
	case CALL_CUDA_MAP:
		call->key.address = REGS_ARG1(regs);
		call->key.space = SPACE_MAPPING;
		call->slot = REGS_ARG4(regs);
		break;
	case CALL_CUDA_UNMAP:
		call->key.address = REGS_ARG1(regs);
		call->key.space = SPACE_MAPPING;
		gpu_mapping_pop(&call->key, &call->unmapped);
		break;
	case CALL_CUDA_PIN:
		call->memory.kind = KIND_PINNED;
		break;
	case CALL_CUDA_REGISTER:
		call->memory.kind = KIND_REGISTERED;
		call->key.address = REGS_ARG1(regs);
		call->key.space = SPACE_REGISTERED;
		break;
	case CALL_CUDA_FREE:
		release_ref(call, REGS_ARG1(regs), SPACE_ADDRESS);
		break;
	case CALL_CUDA_RELEASE:
		release_ref(call, REGS_ARG1(regs), SPACE_HANDLE);
		break;
	case CALL_CUDA_UNREGISTER:
		release_ref(call, REGS_ARG1(regs), SPACE_REGISTERED);
		break;
	}
}

/* Handles the entry of a driver function. */
static __always_inline void gpu_call_entry(struct pt_regs *regs, __u32 tgid,
					   enum probe_cookie cookie)
{
	struct gpu_call *call = current_gpu_call();

	if (!call)
		return;
	if (is_inner_gpu_call(call, REGS_SP(regs), cookie))
		return;

	count(COUNT_GPU_CALLS);
	charge_current(costs.driver_call);
	record_gpu_user(tgid);

	__builtin_memset(call, 0, sizeof(*call));
	call->cookie = cookie;
	call->key.tgid = tgid;
	read_gpu_arguments(call, regs);

	if ((cookie & COOKIE_FORM) <= CALL_CUDA_REGISTER)
		call->memory.stack = capture_stack(regs, tgid, true, COUNT_KERNEL_WALK_NS);
	call->sp = REGS_SP(regs);
}

/* Reads the address or the handle that the driver stored, and the pitch in bytes. */
static __always_inline bool read_gpu_result(struct gpu_call *call)
{
	__u64 pitch = 0;

	if ((call->cookie & COOKIE_FORM) != CALL_CUDA_REGISTER &&
	    bpf_probe_read_user(&call->key.address, sizeof(call->key.address), (void *)call->slot))
		return false;

	call->memory.size = call->size;
	if ((call->cookie & COOKIE_FORM) != CALL_CUDA_PITCH)
		return true;
	if (bpf_probe_read_user(&pitch, sizeof(pitch), (void *)call->pitch_slot))
		return false;
	call->memory.size = product(pitch, call->size);
	return true;
}

/* Undoes the removal by the entry of a failed call. */
static __always_inline void restore_released(struct gpu_call *call)
{
	if (call->was_live)
		gpu_live_put(&call->key, &call->memory);
	else if (call->memory.references)
		retain_ref(&call->key);

	if (call->unmapped.size)
		bpf_map_update_elem(&gpu_mappings, &call->key, &call->unmapped, BPF_ANY);
}

/* Handles the return of a driver function; result is a CUresult. */
static __always_inline void gpu_call_return(struct gpu_call *call, __u64 result)
{
	__u64 form = call->cookie & COOKIE_FORM;

	if ((__u32)result) {
		restore_released(call);
		return;
	}

	if (form == CALL_CUDA_MAP)
		gpu_mapping_add(&call->key, call->slot, call->size);
	if (form == CALL_CUDA_UNMAP)
		gpu_mapping_unmap(&call->key, &call->unmapped, call->size);
	if (form > CALL_CUDA_RETAIN)
		return;

	if (!read_gpu_result(call))
		lose_current(DROP_OUT_POINTER);
	else if (form == CALL_CUDA_RETAIN)
		retain_ref(&call->key);
	else
		gpu_live_add(&call->key, &call->memory);
}

/* Handles the return of the call whose stack pointer at the entry was this one. */
static __always_inline int gpu_return(struct pt_regs *regs, __u64 sp)
{
	struct gpu_call *call;

	if (!is_traced(current_tgid()))
		return 0;
	call = current_gpu_call();
	if (!call || !call->sp || sp != call->sp)
		return 0;

	call->sp = 0;
	gpu_call_return(call, REGS_RESULT(regs));
	return 0;
}

/* At the entry of a driver function, or at an instruction that returns from it, where the stack
 * pointer is as at the entry. */
SEC("uprobe")
int cuda_on_entry(struct pt_regs *ctx)
{
	enum probe_cookie cookie = bpf_get_attach_cookie(ctx);
	__u32 tgid = current_tgid();

	keep_task_stack(ctx, &no_programs);
	if (!is_traced(tgid))
		return 0;
	if ((cookie & COOKIE_FORM) == CALL_EXIT)
		return gpu_return(ctx, REGS_SP(ctx));
	gpu_call_entry(ctx, tgid, cookie);
	return 0;
}

SEC("uretprobe")
int cuda_on_return(struct pt_regs *ctx)
{
	keep_task_stack(ctx, &no_programs);
	return gpu_return(ctx, REGS_SP(ctx) - RETURN_SLOT);
}
