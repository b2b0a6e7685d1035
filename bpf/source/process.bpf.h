/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What happens to a traced process as a whole. */
#pragma once

#include "maps.h"

/* Sends a notice that has hardly more to say than when. */
static __always_inline void tell(enum notice_kind kind, __u32 tgid, __u64 length, __u64 wakeup)
{
	struct notice *notice = bpf_ringbuf_reserve(&notices, sizeof(*notice), 0);

	if (!notice) {
		count(DROP_NOTICES);
		return;
	}
	__builtin_memset(notice, 0, sizeof(*notice));
	notice->kind = kind;
	notice->tgid = tgid;
	notice->time = bpf_ktime_get_ns();
	notice->length = length;
	bpf_ringbuf_submit(notice, wakeup);
}

/* A process that executes another program loses its memory: stop counting at that very moment. */
SEC("raw_tracepoint/sched_process_exec")
int on_exec(void *ctx)
{
	enum target_state gone = TARGET_GONE;
	__u32 tgid = current_tgid();

	if (!is_traced(tgid))
		return 0;
	bpf_map_update_elem(&targets, &tgid, &gone, BPF_ANY);
	tell(NOTICE_EXEC, tgid, 0, NOTICE_URGENT);
	return 0;
}
