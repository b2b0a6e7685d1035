package stack

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// quietAfterRescan is how long the kernel side keeps quiet about unknown code after we have looked.
const quietAfterRescan = time.Second

// unwinder tells the kernel side how to walk the stacks of a process: which code is mapped where, the unwind tables of the
// files, the interpreter. It looks again whenever code has been mapped.
type Unwinder struct {
	process *process.Process
	kernel  *kernel.Kernel
	tables  *unwind.Tables
	Space   *unwind.AddressSpace
	stacks  *Table
	onMaps  func([]process.Mapping) // told of every reading, in a goroutine of its own

	interpreter atomic.Pointer[python.Interpreter] // nil: none found
	whyNoPython atomic.Pointer[error]              // what was found is not supported

	wake, stop, done chan struct{}
}

// StartUnwinder begins with these maps; the tables of the files are made meanwhile. The stacks are told of every reading.
func StartUnwinder(k *kernel.Kernel, tables *unwind.Tables, p *process.Process, maps []process.Mapping, stacks *Table, onMaps func([]process.Mapping)) (*Unwinder, error) {
	u := &Unwinder{
		process: p, kernel: k, tables: tables, stacks: stacks, onMaps: onMaps,
		Space: unwind.NewAddressSpace(p, tables, k.Mappings, k.MappingSpec),
		wake:  make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := u.update(maps); err != nil {
		return nil, err
	}
	go u.run(maps)
	return u, nil
}

// update makes the kernel side know these maps.
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

// findPython looks for the interpreter; one that is not supported is told once.
func (u *Unwinder) findPython(maps []process.Mapping) error {
	found, err := python.Find(u.process, maps)
	if err != nil {
		u.whyNoPython.Store(&err)
		return nil
	}
	if found == nil {
		return nil
	}
	u.stacks.SetInterpreter(found) // before the first code object is told
	if err := u.kernel.Pythons.Put(uint32(u.process.PID), found.Kernel); err != nil {
		return fmt.Errorf("publish interpreter of pid %d: %w", u.process.PID, err)
	}
	u.interpreter.Store(found)
	return nil
}

// source tells of the interpreter, if there is one.
func (u *Unwinder) Status() []source.Status {
	if i := u.interpreter.Load(); i != nil {
		return []source.Status{{Name: "python", Attached: true, Details: []string{"Python " + i.Version + " in " + i.Module.Path}}}
	}
	if err := u.whyNoPython.Load(); err != nil {
		return []source.Status{{Name: "python", Reason: (*err).Error(), Err: *err}}
	}
	return nil
}

// isUrgent tells the files through which nearly every stack leads.
func (u *Unwinder) isUrgent(m process.Mapping) bool {
	name := filepath.Base(m.Path)
	return m.Path == u.process.Executable || strings.HasPrefix(name, "libc.so") || strings.HasPrefix(name, "libpython")
}

// refresh makes it look at the maps soon.
func (u *Unwinder) Refresh() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *Unwinder) run(first []process.Mapping) {
	defer close(u.done)
	u.onMaps(first)
	var again <-chan time.Time
	for {
		select {
		case <-u.stop:
			return
		case <-again:
			_ = u.kernel.Requests.Delete(uint32(u.process.PID)) // it may not be there
		case <-u.wake:
			u.rescan()
			again = time.After(quietAfterRescan)
		}
	}
}

// look brings the kernel side up to date, and then rests: reading the maps holds a lock of the process, which may map code
// all the time. Of that time, a tenth at most is ours.
func (u *Unwinder) rescan() {
	began := time.Now()
	if maps, err := u.process.Maps(); err == nil {
		_ = u.update(maps) // stacks through what is new end there, and say so
		u.onMaps(maps)
	}
	select {
	case <-u.stop:
	case <-time.After(9 * time.Since(began)):
	}
}

// close stops looking.
func (u *Unwinder) Close() {
	close(u.stop)
	<-u.done
}
