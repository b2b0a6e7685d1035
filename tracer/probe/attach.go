package probe

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// A Mode is the kernel's way of attaching probes to functions.
type Mode int

// The modes, the best last. Automatic chooses the best that the kernel has.
const (
	Automatic Mode = iota
	Single         // a perf event for each probe
	Multi          // a uprobe_multi link for the entries of a file and one for the returns, since 6.6
	Session        // one uprobe session link for both; the entry can skip the return; since 6.13
)

// String returns the mode's name for people.
func (m Mode) String() string {
	return [...]string{"automatic", "single uprobes", "uprobe_multi", "uprobe session"}[m]
}

// AttachTraceUprobeSession is BPF_TRACE_UPROBE_SESSION of enum bpf_attach_type, <linux/bpf.h>.
// cilium/ebpf has no name for it yet.
const AttachTraceUprobeSession ebpf.AttachType = 57

// Programs returns a BPF program by its name, one of bpf.Prog*.
type Programs func(name string) (*ebpf.Program, error)

// Attach attaches the programs of the allocator's functions to all sites of a file in a process. It
// attaches all or nothing.
func Attach(mode Mode, file FileSites, programs Programs, pid int) ([]link.Link, error) {
	if mode == Session {
		return attachAll(file.Mapping.Path,
			func() ([]link.Link, error) { return attachSession(file, programs, pid) })
	}
	return attachAll(file.Mapping.Path,
		func() ([]link.Link, error) {
			return attachEntries(mode, file, programs, bpf.ProgHeapOnEntry, pid)
		},
		func() ([]link.Link, error) {
			returning := file.only(Function.returns)
			return attachReturns(mode, returning, programs, bpf.ProgHeapOnReturn, pid)
		})
}

// AttachCUDADriver attaches to the functions of the CUDA driver API in a process, all or none.
// Probes of returns come first: where the entry of a call has been seen, its return will be, too.
func AttachCUDADriver(mode Mode, file FileSites, programs Programs, pid int) ([]link.Link, error) {
	entries := file.only(func(f Function) bool { return !f.isExit() })
	return attachAll(file.Mapping.Path,
		func() ([]link.Link, error) {
			returning := file.only(Function.returns)
			return attachReturns(mode, returning, programs, bpf.ProgCudaOnReturn, pid)
		},
		func() ([]link.Link, error) {
			return attachEntries(mode, file.only(Function.isExit), programs, bpf.ProgCudaOnEntry, pid)
		},
		func() ([]link.Link, error) {
			return attachEntries(mode, entries, programs, bpf.ProgCudaOnEntry, pid)
		})
}

// AttachReturn attaches the program of returns from the CUDA driver API to functions in a process
// that is not traced: it counts nothing there, but the functions return through return probes.
func AttachReturn(mode Mode, file FileSites, programs Programs, pid int) ([]link.Link, error) {
	return attachAll(file.Mapping.Path, func() ([]link.Link, error) {
		return attachReturns(mode, file, programs, bpf.ProgCudaOnReturn, pid)
	})
}

// AttachBlocks attaches to the one function of a file to which blocks are reported.
func AttachBlocks(mode Mode, file FileSites, programs Programs, pid int) (link.Link, error) {
	return attachEntry(mode, file, programs, bpf.ProgOnBlock, pid)
}

// AttachStep attaches to the one site of a step function in a process. It uses a perf event in all
// modes: a single probe that fires a few times a second need not be cheap.
func AttachStep(file FileSites, programs Programs, pid int) (link.Link, error) {
	return attachEntry(Single, file, programs, bpf.ProgOnStep, pid)
}

// attachEntry attaches a program to the one site of a file in a process, without a return probe.
func attachEntry(mode Mode, file FileSites, programs Programs, name string, pid int) (link.Link, error) {
	links, err := attachAll(file.Mapping.Path,
		func() ([]link.Link, error) { return attachEntries(mode, file, programs, name, pid) })
	if err != nil {
		return nil, err
	}
	if len(links) == 0 {
		return nil, fmt.Errorf("attach to %s: no site", file.Mapping.Path)
	}
	return links[0], nil
}

// ErrBlocked means that the kernel has not attached or detached in time. For each probe, it takes the
// lock of the address space of every process that has mapped the file, and one of them keeps its own.
// fork(2) waits for as long, in all processes of the machine. Nothing can end that but the end of the
// process that keeps its lock.
var ErrBlocked = errors.New("the kernel waits for a process that keeps its address space locked")

const (
	// kernelLimit is the time that the kernel has to attach or to detach. It takes milliseconds, or
	// tens of seconds for single uprobes on a busy machine: for each it waits for all CPUs (RCU).
	kernelLimit = 2 * time.Minute
	// blockedLimit is the time that it has while an earlier call has not returned: all wait for the
	// same lock.
	blockedLimit = time.Second
)

// blocked are the calls that have not returned in time.
var blocked atomic.Int32

// within runs a call of the kernel. After kernelLimit it returns ErrBlocked, and runs late once the
// call has returned.
func within[T any](call func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	limit := time.NewTimer(kernelLimit)
	defer limit.Stop()
	if blocked.Load() > 0 {
		limit.Reset(blockedLimit)
	}

	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-limit.C:
		blocked.Add(1)
		go func() {
			r := <-done
			blocked.Add(-1)
			late(r.value)
		}()
		var none T
		return none, ErrBlocked
	}
}

// attachAll runs steps that return links. If one fails, it closes the links of all.
func attachAll(path string, steps ...func() ([]link.Link, error)) ([]link.Link, error) {
	attach := func() (all []link.Link, err error) {
		for _, step := range steps {
			links, err := step()
			all = append(all, links...)
			if err != nil {
				return nil, errors.Join(err, closeAll(all))
			}
		}
		return all, nil
	}
	links, err := within(attach, func(late []link.Link) { _ = closeAll(late) })
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", path, err)
	}
	return links, nil
}

// Close closes links, the last opened first. The error wraps ErrBlocked if that takes too long: the
// kernel goes on with it.
func Close(links []link.Link) error {
	if len(links) == 0 {
		return nil
	}
	detach := func() (struct{}, error) { return struct{}{}, closeAll(links) }
	if _, err := within(detach, func(struct{}) {}); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	return nil
}

func closeAll(links []link.Link) error {
	var errs []error
	for _, l := range slices.Backward(links) {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// attachEntries attaches a program to the entries of the functions of a file. With an error it
// returns the links that it has made.
func attachEntries(
	mode Mode, file FileSites, programs Programs, name string, pid int,
) ([]link.Link, error) {
	return attachUprobes(mode, file, programs, name, pid, "uprobe")
}

// attachReturns attaches a program to their returns, like attachEntries.
func attachReturns(
	mode Mode, file FileSites, programs Programs, name string, pid int,
) ([]link.Link, error) {
	return attachUprobes(mode, file, programs, name, pid, "uretprobe")
}

func attachUprobes(
	mode Mode, file FileSites, programs Programs, name string, pid int, kind string,
) ([]link.Link, error) {
	var points []point
	for _, s := range file.Sites {
		points = append(points, point{name: s.Function.Name, offset: s.Offset, cookie: s.cookie()})
	}
	return attachPoints(mode, file.Path, points, programs, name, pid, kind)
}

// A point is an instruction of a file that is probed.
type point struct {
	name           string
	offset, cookie uint64
	semaphore      uint64 // offset in the file of the counter that the kernel raises; 0: none
}

// attachPoints attaches a program to points of a file, in a process or, with PID 0, in all. With an
// error it returns the links that it has made.
func attachPoints(
	mode Mode, held hostile.HeldPath, points []point, programs Programs, name string, pid int, kind string,
) ([]link.Link, error) {
	if len(points) == 0 {
		return nil, nil
	}
	program, err := programs(name)
	if err != nil {
		return nil, err
	}
	executable, err := link.OpenExecutable(held.String())
	if err != nil {
		return nil, err
	}
	attachOne, attachMany := executable.Uprobe, executable.UprobeMulti
	if kind == "uretprobe" {
		attachOne, attachMany = executable.Uretprobe, executable.UretprobeMulti
	}

	if mode != Single {
		options := &link.UprobeMultiOptions{PID: uint32(pid)}
		for _, p := range points {
			options.Addresses = append(options.Addresses, p.offset)
			options.Cookies = append(options.Cookies, p.cookie)
			options.RefCtrOffsets = append(options.RefCtrOffsets, p.semaphore)
		}
		l, err := attachMany(nil, program, options)
		if err != nil {
			return nil, fmt.Errorf("create %s_multi link: %w", kind, err)
		}
		return []link.Link{l}, nil
	}

	var links []link.Link
	for _, p := range points {
		options := &link.UprobeOptions{
			Address: p.offset, PID: pid, Cookie: p.cookie, RefCtrOffset: p.semaphore,
		}
		l, err := attachOne("", program, options)
		if err != nil {
			return links, fmt.Errorf("create %s of %s: %w", kind, p.name, err)
		}
		links = append(links, l)
	}
	return links, nil
}

// only returns the file with those sites whose function is wanted.
func (f FileSites) only(isWanted func(Function) bool) FileSites {
	f.Sites = slices.Clone(f.Sites)
	f.Sites = slices.DeleteFunc(f.Sites, func(s Site) bool { return !isWanted(s.Function) })
	return f
}

func (f FileSites) offsetsAndCookies() (offsets, cookies []uint64) {
	for _, s := range f.Sites {
		offsets = append(offsets, s.Offset)
		cookies = append(cookies, s.cookie())
	}
	return offsets, cookies
}

// attachSession attaches one session for all functions whose returns can be probed. Functions that
// may throw are no part of it. If another tool probes the same instruction, the kernel does not ask
// our program whether to probe the return, and no exception can pass a return probe.
func attachSession(file FileSites, programs Programs, pid int) ([]link.Link, error) {
	hasReturns := slices.ContainsFunc(file.Sites, func(s Site) bool { return s.Function.returns() })
	isInSession := func(f Function) bool {
		return hasReturns && !f.Throws && !f.Exits && !f.isExit()
	}
	inSession := file.only(isInSession)
	others := file.only(func(f Function) bool { return !isInSession(f) })

	var links []link.Link
	if len(inSession.Sites) > 0 {
		l, err := createSession(inSession, programs, pid)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	entries, err := attachEntries(Multi, others, programs, bpf.ProgHeapOnEntry, pid)
	return append(links, entries...), err
}

// createSession makes the system call bpf(2) itself: cilium/ebpf 0.22 can parse such a link, but
// not create it.
func createSession(file FileSites, programs Programs, pid int) (link.Link, error) {
	program, err := programs(bpf.ProgHeapSession)
	if err != nil {
		return nil, err
	}
	path, err := unix.BytePtrFromString(file.Path.String())
	if err != nil {
		return nil, err
	}
	offsets, cookies := file.offsetsAndCookies()

	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(path)
	pins.Pin(&offsets[0])
	pins.Pin(&cookies[0])

	attribute := struct { // union bpf_attr, link_create with uprobe_multi, <linux/bpf.h>
		program, target, attachType, flags uint32
		path, offsets, references, cookies uint64
		count, multiFlags, pid, padding    uint32
	}{
		program: uint32(program.FD()), attachType: uint32(AttachTraceUprobeSession),
		path: address(path), offsets: address(&offsets[0]), cookies: address(&cookies[0]),
		count: uint32(len(offsets)), pid: uint32(pid),
	}
	const linkCreate = 28 // BPF_LINK_CREATE
	fd, _, errno := unix.Syscall(unix.SYS_BPF, linkCreate,
		uintptr(unsafe.Pointer(&attribute)), unsafe.Sizeof(attribute))
	runtime.KeepAlive(program)
	if errno != 0 {
		return nil, fmt.Errorf("create uprobe session link: %w", errno)
	}
	return link.NewFromFD(int(fd))
}

// address returns the address of pinned memory, for the kernel.
func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }
