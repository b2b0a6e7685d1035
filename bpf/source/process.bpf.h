/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Events of a traced process as a whole. */
#pragma once

#include "share.h"

/* Submits an event without a stack. NULL: the ring has no room for it. */
static __always_inline void submit_event(struct event *event, enum event_kind kind, __u32 tgid,
					 __u64 length, __u64 wakeup)
{
	if (!event) {
		lose(usage_of(tgid), DROP_EVENTS, 0);
		return;
	}

	__builtin_memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->tgid = tgid;
	event->time = bpf_ktime_get_ns();
	event->length = length;
	bpf_ringbuf_submit(event, wakeup);
}

/* Sends an event without a stack. */
static __always_inline void send_event(enum event_kind kind, __u32 tgid, __u64 length, __u64 wakeup)
{
	struct event *event = NULL;

	if (may_send(usage_of(tgid), sizeof(*event)))
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	submit_event(event, kind, tgid, length, wakeup);
}

/* Context of the tracepoint: /sys/kernel/tracing/events/oom/mark_victim/format */
struct oom_victim {
	__u64 common;
	__s32 pid; /* of the initial PID namespace */
};

/* The kernel has chosen a process to kill, because the machine or a cgroup is out of memory. */
SEC("tracepoint/oom/mark_victim")
int on_oom_victim(struct oom_victim *ctx)
{
	__u32 tgid = ctx->pid;

	if (is_traced(tgid))
		send_event(EVENT_OUT_OF_MEMORY, tgid, 0, urgent_wakeup());
	return 0;
}

/* execve replaces the address space: nothing counts from that moment on. */
SEC("raw_tracepoint/sched_process_exec")
int on_exec(void *ctx)
{
	enum target_state gone = TARGET_GONE;
	__u32 tgid = current_tgid();

	if (!is_traced(tgid))
		return 0;

	bpf_map_update_elem(&targets, &tgid, &gone, BPF_ANY);
	send_event(EVENT_EXEC, tgid, 0, urgent_wakeup());
	return 0;
}
