package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
)

// codeID is a key of the map of code objects that the BPF programs have reported, opaque here.
type codeID [16]byte

// DeleteProcesses deletes the records of processes that all sources have in common: stacks, code
// and tallies.
func (k *Kernel) DeleteProcesses(pids ...uint32) error {
	isGone := func(pid uint32) bool { return slices.Contains(pids, pid) }
	isReported := func(_ *uint64, tgid *uint32) bool { return isGone(*tgid) }
	isReportedCode := func(_ *codeID, tgid *uint32) bool { return isGone(*tgid) }
	return errors.Join(
		DeleteWhere(k.Tallies, func(key *bpf.TallyKey, _ *bpf.Tally) bool {
			return isGone(key.Tgid)
		}),
		DeleteWhere(k.ReportedStacks, isReported),
		DeleteWhere(k.ReportedCodes, isReportedCode),
		k.removeUsers(pids),
	)
}

// MoveObjects moves the objects of a map to another and calls moved for each, unless it
// is nil. If the other is full, the rest is lost: it returns how many.
func (k *Kernel) MoveObjects(
	from, to *ebpf.Map, moved func(bpf.Address, *bpf.Allocation),
) (lost int, err error) {
	var keys []bpf.Address
	var values []bpf.Allocation
	err = ReadMap(from, func(key *bpf.Address, a *bpf.Allocation) {
		keys, values = append(keys, *key), append(values, *a)
	})
	if err != nil {
		return 0, fmt.Errorf("read the entries to move: %w", err)
	}

	err = k.DeleteObjects(from, keys)
	added := make(map[uint32]int64)
	for i, key := range keys {
		if to.Put(key, values[i]) != nil {
			lost = len(keys) - i
			break
		}
		added[key.Tgid]++
		if moved != nil {
			moved(key, &values[i])
		}
	}
	return lost, errors.Join(err, k.noteAll(to, added, -1))
}
