/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Constants of the kernel's user-space API, copied by hand. The header that has them all,
 * include/uapi/linux/bpf.h, is over 7,000 lines long. */
#pragma once

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

/* Flags of map creation. */
enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_INNER_MAP = 1 << 12,
};

/* Flags of bpf_map_update_elem(). */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

/* Flags of bpf_task_storage_get(). */
enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1 << 0,
};

/* Flags of bpf_ringbuf_output() and bpf_ringbuf_submit(), and of bpf_ringbuf_query(). */
enum {
	BPF_RB_NO_WAKEUP = 1 << 0,
	BPF_RB_FORCE_WAKEUP = 1 << 1,
	BPF_RB_AVAIL_DATA = 0,
};

/* include/uapi/asm-generic/errno-base.h */
#define E2BIG 7
#define EEXIST 17
