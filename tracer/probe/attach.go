package probe

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
)

// A Mode is a way of attaching to functions that the kernel offers.
type Mode int

// The modes, the best last. Zero is for automatic choice.
const (
	Automatic Mode = iota
	Single         // a perf event for each probe
	Multi          // one uprobe_multi link for the entries of a file and one for the returns, since 6.6
	Session        // one uprobe session link for both, whose entry can leave out the return, since 6.13
)

func (m Mode) String() string {
	return [...]string{"automatic", "single uprobes", "uprobe_multi", "uprobe session"}[m]
}

// AttachTraceUprobeSession is BPF_TRACE_UPROBE_SESSION of enum bpf_attach_type, <linux/bpf.h>, for which the library has no
// name yet.
const AttachTraceUprobeSession ebpf.AttachType = 57

// Programs are those that a Mode attaches: Session in that mode, Return in the others, and Entry in all.
type Programs struct {
	Session, Entry, Return *ebpf.Program
}

// Attach attaches the programs to all sites of a file in the given process. It attaches all or nothing.
func Attach(mode Mode, target Target, programs Programs, pid int) ([]link.Link, error) {
	var links []link.Link
	var err error
	switch mode {
	case Session:
		links, err = attachSession(target, programs, pid)
	case Multi:
		links, err = attachMulti(target, programs, pid)
	default:
		links, err = attachSingle(target, programs, pid)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach to %s: %w", target.File.Path, err), Close(links))
	}
	return links, nil
}

// Close closes links, the last opened first.
func Close(links []link.Link) error {
	var errs []error
	for i := len(links) - 1; i >= 0; i-- {
		errs = append(errs, links[i].Close())
	}
	return errors.Join(errs...)
}

func (t Target) offsetsAndCookies() (offsets, cookies []uint64) {
	for _, s := range t.Sites {
		offsets = append(offsets, s.Offset)
		cookies = append(cookies, s.cookie())
	}
	return offsets, cookies
}

// attachSession leaves functions that may throw out of the session. Where another process comes to the same place, for a probe of
// its own, the kernel does not ask our program and follows the return, and no exception finds its way through a return that is followed.
func attachSession(target Target, programs Programs, pid int) ([]link.Link, error) {
	followed, entered := target.parted()
	var links []link.Link
	if len(followed.Sites) > 0 {
		l, err := createSession(followed, programs.Session, pid)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	if len(entered.Sites) > 0 {
		l, err := attachEntries(entered, programs.Entry, pid)
		if err != nil {
			return links, err
		}
		links = append(links, l)
	}
	return links, nil
}

// parted are the sites that a session is for, with those of which the return is of no interest, and those that may throw. Where
// nothing returns they are all of the latter kind.
func (t Target) parted() (followed, entered Target) {
	followed, entered = t, t
	followed.Sites, entered.Sites = nil, nil
	some := slices.ContainsFunc(t.Sites, func(s Site) bool { return s.Function.returns() })
	for _, s := range t.Sites {
		if some && !s.Function.Throws && s.Function.Form != bpf.KernelCallFormCALL_EXIT {
			followed.Sites = append(followed.Sites, s)
		} else {
			entered.Sites = append(entered.Sites, s)
		}
	}
	return followed, entered
}

// createSession makes the system call itself: cilium/ebpf 0.22 knows the link but has no way to make it.
func createSession(target Target, program *ebpf.Program, pid int) (link.Link, error) {
	path, err := unix.BytePtrFromString(target.Path)
	if err != nil {
		return nil, err
	}
	offsets, cookies := target.offsetsAndCookies()
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
	fd, _, errno := unix.Syscall(unix.SYS_BPF, linkCreate, uintptr(unsafe.Pointer(&attribute)), unsafe.Sizeof(attribute))
	runtime.KeepAlive(program)
	if errno != 0 {
		return nil, fmt.Errorf("create uprobe session link: %w", errno)
	}
	return link.NewFromFD(int(fd))
}

// address of pinned memory, for the kernel.
func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

func attachMulti(target Target, programs Programs, pid int) ([]link.Link, error) {
	entry, err := attachEntries(target, programs.Entry, pid)
	if err != nil {
		return nil, err
	}
	links := []link.Link{entry}
	returning := target.returning()
	if len(returning.Sites) == 0 {
		return links, nil
	}
	file, err := link.OpenExecutable(target.Path)
	if err != nil {
		return links, err
	}
	offsets, cookies := returning.offsetsAndCookies()
	options := &link.UprobeMultiOptions{Addresses: offsets, Cookies: cookies, PID: uint32(pid)}
	exit, err := file.UretprobeMulti(nil, programs.Return, options)
	if err != nil {
		return links, fmt.Errorf("create uretprobe_multi link: %w", err)
	}
	return append(links, exit), nil
}

func attachEntries(target Target, program *ebpf.Program, pid int) (link.Link, error) {
	file, err := link.OpenExecutable(target.Path)
	if err != nil {
		return nil, err
	}
	offsets, cookies := target.offsetsAndCookies()
	options := &link.UprobeMultiOptions{Addresses: offsets, Cookies: cookies, PID: uint32(pid)}
	entry, err := file.UprobeMulti(nil, program, options)
	if err != nil {
		return nil, fmt.Errorf("create uprobe_multi link: %w", err)
	}
	return entry, nil
}

// returning leaves out the functions whose return is of no interest.
func (t Target) returning() Target {
	kept := t
	kept.Sites = nil
	for _, s := range t.Sites {
		if s.Function.returns() {
			kept.Sites = append(kept.Sites, s)
		}
	}
	return kept
}

func attachSingle(target Target, programs Programs, pid int) ([]link.Link, error) {
	file, err := link.OpenExecutable(target.Path)
	if err != nil {
		return nil, err
	}
	var links []link.Link
	for _, s := range target.Sites {
		options := &link.UprobeOptions{Address: s.Offset, PID: pid, Cookie: s.cookie()}
		entry, err := file.Uprobe("", programs.Entry, options)
		if err != nil {
			return links, fmt.Errorf("create uprobe of %s: %w", s.Function.Name, err)
		}
		links = append(links, entry)
	}
	for _, s := range target.returning().Sites {
		exit, err := file.Uretprobe("", programs.Return, &link.UprobeOptions{Address: s.Offset, PID: pid})
		if err != nil {
			return links, fmt.Errorf("create uretprobe of %s: %w", s.Function.Name, err)
		}
		links = append(links, exit)
	}
	return links, nil
}
