//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel side of allocscope: one object, made of one header per source. */
#include "types.h"

#include "bpf_helpers.h"

#include "source/block.bpf.h"
#include "source/cuda.bpf.h"
#include "source/fault.bpf.h"
#include "source/heap.bpf.h"
#include "source/mapping.bpf.h"
#include "source/process.bpf.h"
#include "source/producer.bpf.h"
#include "source/registers.bpf.h"
#include "source/step.bpf.h"
#include "source/wait.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
