//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel side of allocscope: one object, put together from a header per subject. */
#include "types.h"

#include "bpf_helpers.h"

#include "block.h"
#include "cuda.h"
#include "fault.h"
#include "heap.h"
#include "mapping.h"
#include "process.h"
#include "step.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
