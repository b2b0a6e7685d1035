package estimate

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// minAlive is the least probability at which a sampled object counts as alive: its memory may
// belong to another one since.
const minAlive = 0.9

// maxCandidates is how many objects of each group LiveCandidates returns.
const maxCandidates = 1024

// A Candidate is a sampled object whose free was not seen.
type Candidate struct {
	key        bpf.Address
	allocation bpf.Allocation
}

// LiveCandidates reads the live maps, and returns at most maxCandidates sampled objects of each group,
// at random, in random order. groupOf returns the group of a process's stack, below groups; false: its
// objects are not wanted. They were born from one moment to another, in ns, CLOCK_MONOTONIC.
func LiveCandidates(
	k *kernel.Kernel, groupOf func(tgid uint32, stack uint64) (int, bool), groups int,
	from, to uint64,
) ([][]Candidate, error) {
	found, seen := make([][]Candidate, groups), make([]int, groups)
	add := func(key *bpf.Address, a *bpf.Allocation) {
		if a.Born < from || a.Born > to {
			return
		}
		group, ok := groupOf(key.Tgid, a.Stack)
		if !ok {
			return
		}

		seen[group]++ // algorithm R, https://en.wikipedia.org/wiki/Reservoir_sampling
		if i := rand.IntN(seen[group]); len(found[group]) < maxCandidates {
			found[group] = append(found[group], Candidate{*key, *a})
		} else if i < maxCandidates {
			found[group][i] = Candidate{*key, *a}
		}
	}
	for _, m := range []*ebpf.Map{k.Live, k.Tensors} {
		if err := kernel.ReadMap(m, add); err != nil {
			return nil, fmt.Errorf("read live allocations: %w", err)
		}
	}
	for _, group := range found {
		rand.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
	}
	return found, nil
}

// Alive returns the addresses of the first candidates that are most probably alive, at most so many,
// and when the first and the last of them was born, in ns, CLOCK_MONOTONIC.
func (e *Estimator) Alive(
	candidates []Candidate, most int,
) (addresses []uint64, first, last uint64) {
	first = math.MaxUint64
	for _, c := range candidates {
		if len(addresses) == most {
			break
		}
		if e.estimate(&c.key, &c.allocation).Alive >= minAlive {
			addresses = append(addresses, c.key.Address)
			first, last = min(first, c.allocation.Born), max(last, c.allocation.Born)
		}
	}
	return addresses, first, last
}

// StacksAt sets the kernel side's ID of the stack that allocated the memory at some addresses of a
// process, which are the keys of stacks. It leaves out objects born after a moment, in ns,
// CLOCK_MONOTONIC, and objects that may not be alive any more.
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
