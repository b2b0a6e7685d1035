package estimate

import (
	"fmt"
	"math/rand/v2"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// minAlive is the least probability at which a sampled object counts as alive: its memory may be that of
// another one since.
const minAlive = 0.9

// SampleLive returns at most so many addresses of sampled objects of each group, at random. groupOf
// returns the group of a process's stack, below groups; false: its objects are not wanted. They were
// born from one moment to another, in ns, CLOCK_MONOTONIC, and are most probably alive.
func SampleLive(
	k *kernel.Kernel, estimator *Estimator, groupOf func(tgid uint32, stack uint64) (int, bool),
	groups int, from, to uint64, most int,
) ([][]uint64, error) {
	samples, seen := make([][]uint64, groups), make([]int, groups)
	add := func(key *bpf.Address, a *bpf.Allocation) {
		if a.Born < from || a.Born > to {
			return
		}
		group, ok := groupOf(key.Tgid, a.Stack)
		if !ok || estimator.estimate(key, a).Alive < minAlive {
			return
		}

		seen[group]++ // algorithm R, https://en.wikipedia.org/wiki/Reservoir_sampling
		if i := rand.IntN(seen[group]); len(samples[group]) < most {
			samples[group] = append(samples[group], key.Address)
		} else if i < most {
			samples[group][i] = key.Address
		}
	}
	for _, m := range []*ebpf.Map{k.Live, k.Tensors} {
		if err := kernel.ReadMap(m, add); err != nil {
			return nil, fmt.Errorf("read live allocations: %w", err)
		}
	}
	return samples, nil
}

// StacksAt sets the kernel side's ID of the stack that allocated the memory at some addresses of a
// process, which are the keys of stacks. It leaves out what was born after a moment, in ns,
// CLOCK_MONOTONIC, and what may not be alive any more.
func StacksAt(
	k *kernel.Kernel, estimator *Estimator, pid int, stacks map[uint64]uint64, to uint64,
) error {
	set := func(key *bpf.Address, a *bpf.Allocation) {
		_, wanted := stacks[key.Address]
		if key.Tgid == uint32(pid) && wanted && a.Born <= to &&
			estimator.estimate(key, a).Alive >= minAlive {
			stacks[key.Address] = a.Stack
		}
	}
	for _, m := range []*ebpf.Map{k.Live, k.Tensors} {
		if err := kernel.ReadMap(m, set); err != nil {
			return fmt.Errorf("read live allocations: %w", err)
		}
	}
	return nil
}
