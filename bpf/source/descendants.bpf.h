/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which processes are of the command that the session has started: itself, and all that descend
 * from it, even where init is their parent now. Other processes that use our preloaded library are
 * left alone. */
#pragma once

#include "maps.h"
#include "task.h"

volatile __u32 command = 0;     /* tgid; 0: the session has started none */
volatile __u32 command_uid = 0; /* of its processes; 0: root's may have any */

/* Threads of descendants. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} descendants SEC(".maps");

/* Returns whether the current process is of the command. Before Linux 6.2 it may be missed, as in
 * current_thread(). */
static __always_inline bool is_of_command(void)
{
	if (!command || (command_uid && (__u32)bpf_get_current_uid_gid() != command_uid))
		return false;
	return current_tgid() == command ||
	       bpf_task_storage_get(&descendants, bpf_get_current_task_btf(), NULL, 0);
}

/* A thread has made another one, or a process, which does not run yet. */
SEC("tp_btf/sched_process_fork")
int on_fork(__u64 *ctx)
{
	struct task_struct *child = (void *)ctx[1];

	if (command && (current_tgid() == command ||
			bpf_task_storage_get(&descendants, bpf_get_current_task_btf(), NULL, 0)))
		bpf_task_storage_get(&descendants, child, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

/* A program that has started: a process, and how often that has executed one. */
struct program {
	__u64 start_time, exec_id;
};

/* The last program that has started in each process. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* tgid of the initial PID namespace */
	__type(value, struct program);
} starts SEC(".maps");

/* Returns whether the current program says for the first time that it has started. */
static __always_inline bool is_first_start(void)
{
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	struct program program = {}, *last;
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	program.start_time = leader->start_time;
	program.exec_id = leader->self_exec_id;
	last = bpf_map_lookup_elem(&starts, &tgid);
	if (last && last->start_time == program.start_time && last->exec_id == program.exec_id)
		return false;

	bpf_map_update_elem(&starts, &tgid, &program, BPF_ANY);
	return true;
}
