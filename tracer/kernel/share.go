package kernel

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
)

// users are the processes that have a share of each table that all targets share.
type users struct {
	mu   sync.Mutex
	pids map[uint32]bool
	// gone are processes that had a share, and their losses, if any.
	gone map[uint32]bpf.Usage
}

// maxGone bounds the processes whose losses are known by PID after they have ended.
const maxGone = 1024

// openPart is the part of a table up to which a target may have more than its share. The rest is
// for targets that have less: a process that floods the table before another one starts leaves room
// for it.
const openPart = 4.0 / 5

// sizeFor returns the size of a table of which one process that is alone has so many entries.
func sizeFor(entries int, isShared bool) uint32 {
	if !isShared {
		return uint32(entries)
	}
	return uint32(math.Ceil(float64(entries) / openPart))
}

// AddUser lets a process have its share of the tables. A process that has a share keeps it.
func (k *Kernel) AddUser(pid int) error {
	k.users.mu.Lock()
	defer k.users.mu.Unlock()

	if _, err := k.Program(bpf.ProgOnDeletion); err != nil { // which removeUsers runs
		return err
	}
	err := k.Usages.Update(uint32(pid), bpf.Usage{}, ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("share the tables with process %d: %w", pid, err)
	}
	k.users.pids[uint32(pid)] = true
	return k.setShares()
}

// removeUsers takes the shares of processes away, whose entries have been deleted.
func (k *Kernel) removeUsers(pids []uint32) error {
	k.users.mu.Lock()
	defer k.users.mu.Unlock()

	var errs []error
	for _, pid := range pids {
		var usage bpf.Usage
		if k.Usages.Lookup(pid, &usage) != nil { // it has none
			continue
		}
		for table := range bpf.TableEvents { // the reader takes events away
			errs = append(errs, k.noteDeleted(table, pid, int64(usage.Taken[table])))
		}
		errs = append(errs, k.Usages.Delete(pid))
		delete(k.users.pids, pid)
		if usage.Lost != [len(usage.Lost)]uint64{} && len(k.users.gone) < maxGone {
			k.users.gone[pid] = usage
		}
	}
	return errors.Join(append(errs, k.setShares())...)
}

// setShares divides each table among its users. One that is alone is not to be so for ever if the
// session follows other processes.
func (k *Kernel) setShares() error {
	sizes := [bpf.NumTables]uint32{
		bpf.TableLive: k.Live.MaxEntries(), bpf.TableTensors: k.Tensors.MaxEntries(),
		bpf.TableStacks: k.ReportedStacks.MaxEntries(), bpf.TableEvents: k.Events.MaxEntries(),
	}
	var shares [bpf.NumTables]bpf.Share
	for table, size := range sizes {
		shares[table] = bpf.Share{Own: uint64(size), Open: uint64(size)}
		if k.isShared {
			shares[table].Own = uint64(size) / uint64(max(2, len(k.users.pids)))
			shares[table].Open = uint64(math.Floor(openPart * float64(size)))
		}
	}
	if err := k.Shares.Set(shares); err != nil {
		return fmt.Errorf("set the shares of tables: %w", err)
	}
	return nil
}

// noteDeleted counts in the kernel that entries of a process were deleted from a table or, with a
// negative number, added.
func (k *Kernel) noteDeleted(table bpf.Table, pid uint32, entries int64) error {
	if entries == 0 {
		return nil
	}
	program, err := k.Program(bpf.ProgOnDeletion)
	if err != nil {
		return err
	}
	deletion := bpf.Deletion{Tgid: pid, Table: table, Entries: entries}
	if _, err := program.Run(&ebpf.RunOptions{Context: &deletion}); err != nil {
		return fmt.Errorf("count what was deleted: %w", err)
	}
	return nil
}

// tableOf returns which table a map is.
func (k *Kernel) tableOf(m *ebpf.Map) bpf.Table {
	switch m {
	case k.Tensors:
		return bpf.TableTensors
	case k.ReportedStacks:
		return bpf.TableStacks
	}
	return bpf.TableLive
}

// DeleteObjects deletes objects of a map, some of which the kernel may have deleted before.
func (k *Kernel) DeleteObjects(m *ebpf.Map, keys []bpf.Address) error {
	deleted := make(map[uint32]int64)
	deleteKeys(m, keys, func(key bpf.Address) { deleted[key.Tgid]++ })
	return k.noteAll(m, deleted, 1)
}

// ForgetStacks has the BPF programs report stacks again. It is given the process of each, by the ID.
func (k *Kernel) ForgetStacks(processes map[uint64]uint32) error {
	deleted := make(map[uint32]int64)
	ids := slices.Collect(maps.Keys(processes))
	deleteKeys(k.ReportedStacks, ids, func(id uint64) { deleted[processes[id]]++ })
	return k.noteAll(k.ReportedStacks, deleted, 1)
}

// noteAll is noteDeleted for the entries of processes, times a sign.
func (k *Kernel) noteAll(m *ebpf.Map, entries map[uint32]int64, sign int64) error {
	var errs []error
	for _, pid := range slices.Sorted(maps.Keys(entries)) {
		errs = append(errs, k.noteDeleted(k.tableOf(m), pid, sign*entries[pid]))
	}
	return errors.Join(errs...)
}

// lostByUser returns the losses of each process that has or had a share. A PID that two of them had
// has the losses of the last one: the first one's losses belong to no process.
func (k *Kernel) lostByUser() map[uint32]bpf.Usage {
	k.users.mu.Lock()
	defer k.users.mu.Unlock()

	all := maps.Clone(k.users.gone)
	for pid := range k.users.pids {
		var usage bpf.Usage
		if k.Usages.Lookup(pid, &usage) == nil {
			all[pid] = usage
		}
	}
	return all
}

// SetCommand names the process that becomes the command, or whose children do: its descendants may
// become targets, and no other process. 0 is none. uid is of its user; a process of root may go on
// as any user.
func (k *Kernel) SetCommand(pid, uid int) error {
	if err := errors.Join(k.CommandUid.Set(uint32(uid)), k.Command.Set(uint32(pid))); err != nil {
		return fmt.Errorf("set the command: %w", err)
	}
	return nil
}
