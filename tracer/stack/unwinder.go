package stack

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// An Unwinder publishes the data that the BPF programs need to walk the stacks of a process:
// executable mappings, unwind tables of the files, and the Python interpreter. It reads the
// mappings again when the process has mapped code.
type Unwinder struct {
	process *process.Process
	kernel  *kernel.Kernel
	Space   *unwind.AddressSpace
	stacks  *Table
	onMaps  func([]process.Mapping)

	interpreter atomic.Pointer[python.Interpreter] // nil: none was found
	pythonError atomic.Pointer[error]              // why the one that was found is not supported

	rescans          duty.Account
	wake, stop, done chan struct{}
}

// StartUnwinder publishes these mappings and starts a goroutine that keeps them up to date. Unwind
// tables are built in the background. The goroutine calls onMaps with these mappings, and whenever
// it has read them again.
func StartUnwinder(
	k *kernel.Kernel,
	tables *unwind.Tables,
	p *process.Process,
	maps []process.Mapping,
	stacks *Table,
	onMaps func([]process.Mapping),
	own *duty.Budget,
) (*Unwinder, error) {
	u := &Unwinder{
		process: p,
		kernel:  k,
		Space:   unwind.NewAddressSpace(p, tables, k.Mappings, k.MappingSpec),
		stacks:  stacks,
		onMaps:  onMaps,
		rescans: own.Account(duty.Mappings),
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	if err := u.update(maps); err != nil {
		return nil, err
	}

	go u.run(maps)
	return u, nil
}

// update publishes the mappings.
func (u *Unwinder) update(maps []process.Mapping) error {
	u.stacks.SetMappings(maps)

	if u.interpreter.Load() == nil {
		if err := u.findPython(maps); err != nil {
			return err
		}
	}

	var module process.Mapping
	if i := u.interpreter.Load(); i != nil {
		module = i.Module
	}
	return u.Space.Update(maps, module, u.isUrgent)
}

// findPython finds the Python interpreter, if there is one, and publishes how to walk its frames.
func (u *Unwinder) findPython(maps []process.Mapping) error {
	found, err := python.Find(u.process, maps)
	if err != nil {
		u.pythonError.Store(&err)
		return nil
	}
	if found == nil {
		return nil
	}

	u.stacks.SetInterpreter(found) // before the BPF programs report the first code object
	if err := u.kernel.Pythons.Put(uint32(u.process.PID), found.Kernel); err != nil {
		return fmt.Errorf("publish interpreter of pid %d: %w", u.process.PID, err)
	}
	u.interpreter.Store(found)
	return nil
}

// Status returns one status for the Python interpreter, and none if there is no interpreter.
func (u *Unwinder) Status() []source.Status {
	if i := u.interpreter.Load(); i != nil {
		details := []string{"Python " + i.Version + " in " + i.Module.Path}
		return []source.Status{{Name: "python", Attached: true, Details: details}}
	}

	if err := u.pythonError.Load(); err != nil {
		return []source.Status{{Name: "python", Reason: (*err).Error(), Err: *err}}
	}
	return nil
}

// PythonVersion is the version of the Python interpreter; empty: none was found.
func (u *Unwinder) PythonVersion() string {
	if i := u.interpreter.Load(); i != nil {
		return i.Release()
	}
	return ""
}

// isUrgent reports whether nearly every stack leads through a mapping's file. Its unwind table is
// built first.
func (u *Unwinder) isUrgent(m process.Mapping) bool {
	name := filepath.Base(m.Path)
	return m.Path == u.process.Executable ||
		strings.HasPrefix(name, "libc.so") || strings.HasPrefix(name, "libpython")
}

// Refresh makes the unwinder read the mappings soon. It does not wait.
func (u *Unwinder) Refresh() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// requestPause is how long the BPF programs may not report unknown code after a rescan.
const requestPause = time.Second

func (u *Unwinder) run(first []process.Mapping) {
	defer close(u.done)
	u.onMaps(first)

	var pauseEnds <-chan time.Time
	for {
		select {
		case <-u.stop:
			return
		case <-pauseEnds:
			_ = u.kernel.Requests.Delete(uint32(u.process.PID)) // fails if there was no request
		case <-u.wake:
			u.rescan()
			pauseEnds = time.After(requestPause)
		}
	}
}

// rescan reads and publishes the mappings. The kernel locks the address space while they are read,
// and a process may map code all the time. So rescan sleeps for nine times as long as that took, and
// until the CPU time that it may take has accrued. Meanwhile stacks end in code that is new.
func (u *Unwinder) rescan() {
	u.rescans.Accrue(time.Now())
	var took time.Duration
	// First: the BPF programs report code that is mapped from now on. It fails if there was none.
	_ = u.kernel.Requests.Delete(uint32(u.process.PID) | bpf.RequestNewCode)
	u.rescans.Spend(process.MeasureCPUTime(func() {
		began := time.Now()
		maps, err := u.process.Maps()
		took = time.Since(began)
		if err == nil {
			_ = u.update(maps) // stacks through new code are truncated, with the reason
			u.onMaps(maps)
		}
	}))

	select {
	case <-u.stop:
	case <-time.After(max(9*took, u.rescans.Rest(time.Now()))):
	}
}

// Close stops the goroutine and waits for it.
func (u *Unwinder) Close() {
	close(u.stop)
	<-u.done
	u.Space.Close()
}
