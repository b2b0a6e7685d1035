package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// maxBytes is more memory than a GPU has.
const maxBytes = 1 << 50

// processesOf reads who has memory on a device of so many bytes (growth.Unknown: not told). nil: it cannot be had.
func processesOf(d device, name string, total int64, why *reasons) []Process {
	uses, err := d.processes(compute)
	if err != nil {
		why.add(name+": "+compute.String(), err)
		return nil
	}
	merged := make(merger)
	merged.add(uses)
	for _, l := range []list{graphics, shared} {
		uses, err := d.processes(l)
		switch {
		case err == nil:
			merged.add(uses)
		case errors.Is(err, errNotSupported): // a GPU without graphics, or an instance
		case l == shared && errors.Is(err, errNoCall): // a driver that has those among the others
		default:
			why.add(name+": "+l.String(), err)
		}
	}
	processes := merged.processes(total)
	if slices.ContainsFunc(processes, func(p Process) bool { return p.Used == growth.Unknown }) {
		why.say(name + ": the memory of some processes is not told")
	}
	if len(processes) > maxProcesses {
		why.say(fmt.Sprintf("%s: only the %d processes with the most memory are told", name, maxProcesses))
		slices.SortStableFunc(processes, func(a, b Process) int { return cmp.Compare(b.Used, a.Used) })
		processes = slices.Clip(processes[:maxProcesses])
		slices.SortFunc(processes, byPID)
	}
	return processes
}

func byPID(a, b Process) int { return cmp.Compare(a.PID, b.PID) }

// A merger holds the memory of each process on each instance: bytes, or notAvailable.
type merger map[use]uint64

// add takes a list. What other lists had already is the same memory.
func (m merger) add(uses []use) {
	for _, u := range uses {
		if u.pid == 0 || u.pid > math.MaxInt32 {
			continue // no process has that number
		}
		key := use{pid: u.pid, instance: u.instance, compute: u.compute}
		if known, ok := m[key]; !ok || known == notAvailable || u.bytes != notAvailable && u.bytes > known {
			m[key] = u.bytes
		}
	}
}

// processes adds up what each has on the instances of a device of so many bytes.
func (m merger) processes(total int64) []Process {
	most := uint64(maxBytes)
	if total != growth.Unknown {
		most = uint64(total)
	}
	sums := make(map[uint32]int64)
	for u, bytes := range m {
		sum := sums[u.pid]
		switch {
		case sum == growth.Unknown:
		case bytes > most || uint64(sum)+bytes > most:
			sum = growth.Unknown
		default:
			sum += int64(bytes)
		}
		sums[u.pid] = sum
	}
	processes := make([]Process, 0, len(sums))
	for pid, sum := range sums {
		processes = append(processes, Process{PID: int(pid), Used: sum})
	}
	slices.SortFunc(processes, byPID)
	return processes
}
