package source

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// Forget deletes the BPF programs' records of processes. They must not be traced any more. It reads
// all of each map once.
func Forget(k *kernel.Kernel, pids ...uint32) error {
	isGone := func(tgid uint32) bool { return slices.Contains(pids, tgid) }
	errs := []error{k.DeleteProcesses(pids...)}
	for _, r := range registry {
		if r.forget != nil {
			errs = append(errs, r.forget(k, isGone))
		}
	}
	return errors.Join(errs...)
}

// forgetAddresses deletes the entries of processes from a map by address.
func forgetAddresses[V any](m *ebpf.Map, isGone func(tgid uint32) bool) error {
	return kernel.DeleteWhere(m, func(key *bpf.Address, _ *V) bool { return isGone(key.Tgid) })
}

func forgetObjects(k *kernel.Kernel, isGone func(tgid uint32) bool) error {
	return forgetAddresses[bpf.Allocation](k.Live, isGone)
}

func forgetTensors(k *kernel.Kernel, isGone func(tgid uint32) bool) error {
	return forgetAddresses[bpf.Allocation](k.Tensors, isGone)
}

func forgetFaults(k *kernel.Kernel, isGone func(tgid uint32) bool) error {
	return forgetAddresses[bpf.Fault](k.Faults, isGone)
}

func forgetGPU(k *kernel.Kernel, isGone func(tgid uint32) bool) error {
	return errors.Join(
		kernel.DeleteWhere(k.GpuLive, func(key *bpf.GpuAddress, _ *bpf.GpuMemory) bool {
			return isGone(key.Tgid)
		}),
		kernel.DeleteWhere(k.GpuMappings, func(key *bpf.GpuAddress, _ *bpf.GpuMapping) bool {
			return isGone(key.Tgid)
		}),
		kernel.DeleteWhere(k.GpuTotals, func(key *bpf.GpuId, _ *bpf.GpuTotal) bool {
			return isGone(key.Tgid)
		}),
	)
}

func forgetMappings(k *kernel.Kernel, isGone func(tgid uint32) bool) error {
	return errors.Join(
		forgetAddresses[bpf.RecentMapping](k.RecentMappings, isGone),
		kernel.DeleteWhere(k.ReleasedRanges, func(key *bpf.Range, _ *bpf.Release) bool {
			return isGone(key.Tgid)
		}),
		kernel.DeleteWhere(k.MappingPairs, func(key *bpf.MappingPair, _ *bpf.Tally) bool {
			return isGone(key.Tgid)
		}),
	)
}
