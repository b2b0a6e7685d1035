/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `cuda`: the calls of CUDA's driver (libcuda.so.1) that allocate, pin and free. They are few, so that each is
 * taken, and followed to its end: what the driver refuses has not happened. What is given back leaves the map at the
 * entry, before the driver can hand its address to another thread, and comes back where the driver refuses. */
#pragma once

#include "attach.h"
#include "source/gpu.bpf.h"
#include "call.h"
#include "source/handle.bpf.h"
#include "unwind/stack.h"

#define PROPERTIES_LOCATION 8 /* bytes before `location` in CUmemAllocationProp: its type, and its number */
#define LOCATION_DEVICE 1     /* CU_MEM_LOCATION_TYPE_DEVICE */

/* Whether a call belongs to the one that the thread is in: the driver makes it, or has gone there by a tail call. */
static __always_inline bool device_belongs(struct device_call *call, __u64 sp, enum probe_cookie cookie)
{
	if (!call->sp)
		return false;
	if (sp == call->sp ? cookie != call->cookie : sp < call->sp && call->sp - sp < NESTED_SPAN)
		return true;
	count(DROP_MISSED_RETURN);
	return false;
}

/* What cuMemCreate is asked for: on which GPU, or in memory of the host. */
static __always_inline void read_location(struct device_memory *memory, __u64 properties)
{
	__u32 location[2] = {};

	if (bpf_probe_read_user(location, sizeof(location), (void *)(properties + PROPERTIES_LOCATION)))
		return;
	if (location[0] == LOCATION_DEVICE)
		memory->gpu = location[1] + 1;
	else
		memory->kind = KIND_PINNED;
}

/* Takes over the arguments of the call that begins. */
static __always_inline void device_begin(struct device_call *call, struct pt_regs *regs)
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
		mapping_take(&call->key, &call->undone);
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
		give_back(call, REGS_ARG1(regs), SPACE_ADDRESS);
		break;
	case CALL_CUDA_RELEASE:
		give_back(call, REGS_ARG1(regs), SPACE_HANDLE);
		break;
	case CALL_CUDA_UNREGISTER:
		give_back(call, REGS_ARG1(regs), SPACE_REGISTERED);
		break;
	}
}

static __always_inline void device_entry(struct pt_regs *regs, __u32 tgid, enum probe_cookie cookie)
{
	struct device_thread *thread = current_device_thread();
	struct device_call *call;

	if (!thread)
		return;
	call = &thread->call;
	if (device_belongs(call, REGS_SP(regs), cookie))
		return;
	count(COUNT_DEVICE_CALLS);
	note_device_user(tgid);
	__builtin_memset(call, 0, sizeof(*call));
	call->cookie = cookie;
	call->key.tgid = tgid;
	device_begin(call, regs);
	if ((cookie & COOKIE_FORM) <= CALL_CUDA_REGISTER)
		call->memory.stack = capture_stack(regs, tgid, true, COUNT_KERNEL_WALK_NS);
	call->sp = REGS_SP(regs);
}

/* Reads the address or the handle that the driver has written, and the bytes of a pitch. */
static __always_inline bool device_result(struct device_call *call)
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

/* The driver has refused: what was to be given back is still there. */
static __always_inline void device_refused(struct device_call *call)
{
	if (call->had)
		device_put(&call->key, &call->memory);
	else if (call->memory.references)
		device_retain(&call->key);
	if (call->undone.size)
		bpf_map_update_elem(&device_mappings, &call->key, &call->undone, BPF_ANY);
}

static __always_inline void device_finish(struct device_call *call, __u64 result)
{
	__u64 form = call->cookie & COOKIE_FORM;

	if ((__u32)result) {
		device_refused(call);
		return;
	}
	if (form == CALL_CUDA_MAP)
		device_map(&call->key, call->slot, call->size);
	if (form == CALL_CUDA_UNMAP)
		device_unmap(&call->key, &call->undone, call->size);
	if (form > CALL_CUDA_RETAIN)
		return;
	if (!device_result(call))
		count(DROP_OUT_POINTER);
	else if (form == CALL_CUDA_RETAIN)
		device_retain(&call->key);
	else
		device_add(&call->key, &call->memory);
}

SEC("uprobe")
int cuda_on_entry(struct pt_regs *ctx)
{
	__u32 tgid = current_tgid();

	keep_task_stack(ctx, &no_programs);
	if (is_traced(tgid))
		device_entry(ctx, tgid, bpf_get_attach_cookie(ctx));
	return 0;
}

SEC("uretprobe")
int cuda_on_return(struct pt_regs *ctx)
{
	struct device_thread *thread = bpf_task_storage_get(&device_threads, bpf_get_current_task_btf(), NULL, 0);

	keep_task_stack(ctx, &no_programs);
	if (!thread || !thread->call.sp || REGS_SP(ctx) - RETURN_SLOT != thread->call.sp)
		return 0;
	thread->call.sp = 0;
	if (is_traced(current_tgid()))
		device_finish(&thread->call, REGS_RESULT(ctx));
	return 0;
}
