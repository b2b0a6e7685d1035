// Package uprobe attaches BPF programs to instructions of files. A process of its own makes the
// system calls, so that nothing that ends allocscope interrupts them: if a fatal signal comes while
// the kernel writes or removes breakpoints, it stops, and those that are left slow the target down
// for the rest of its life ("failed to unregister, leaking uprobe", kernel/events/uprobes.c).
package uprobe

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

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

// A Kind says when a program runs.
type Kind string

// The kinds.
const (
	Entry  Kind = "uprobe"
	Return Kind = "uretprobe"
	Both   Kind = "uprobe session" // in mode Session alone
)

// A Point is an instruction of a file that is probed.
type Point struct {
	Name           string
	Offset, Cookie uint64
	Semaphore      uint64 // offset in the file of the counter that the kernel raises; 0: none
}

// An Order says where a program is attached.
type Order struct {
	Mode   Mode
	Kind   Kind
	PID    int // 0: in all processes
	Points []Point
}

// attach attaches a program to all points, or to none.
func (o Order) attach(file hostile.HeldPath, program *ebpf.Program) (links []link.Link, err error) {
	if o.Kind == Both {
		l, err := o.createSession(file, program)
		return []link.Link{l}, err
	}
	executable, err := link.OpenExecutable(file.String())
	if err != nil {
		return nil, err
	}
	attachOne, attachMany := executable.Uprobe, executable.UprobeMulti
	if o.Kind == Return {
		attachOne, attachMany = executable.Uretprobe, executable.UretprobeMulti
	}

	if o.Mode != Single {
		offsets, cookies, semaphores := o.columns()
		l, err := attachMany(nil, program, &link.UprobeMultiOptions{
			PID: uint32(o.PID), Addresses: offsets, Cookies: cookies, RefCtrOffsets: semaphores,
		})
		if err != nil {
			return nil, fmt.Errorf("create %s_multi link: %w", o.Kind, err)
		}
		return []link.Link{l}, nil
	}

	for _, p := range o.Points {
		l, err := attachOne("", program, &link.UprobeOptions{
			Address: p.Offset, PID: o.PID, Cookie: p.Cookie, RefCtrOffset: p.Semaphore,
		})
		if err != nil {
			closeAll(links)
			return nil, fmt.Errorf("create %s of %s: %w", o.Kind, p.Name, err)
		}
		links = append(links, l)
	}
	return links, nil
}

func (o Order) columns() (offsets, cookies, semaphores []uint64) {
	for _, p := range o.Points {
		offsets = append(offsets, p.Offset)
		cookies = append(cookies, p.Cookie)
		semaphores = append(semaphores, p.Semaphore)
	}
	return offsets, cookies, semaphores
}

// createSession makes the system call bpf(2) itself: cilium/ebpf 0.22 can parse such a link, but
// not create it.
func (o Order) createSession(file hostile.HeldPath, program *ebpf.Program) (link.Link, error) {
	path, err := unix.BytePtrFromString(file.String())
	if err != nil {
		return nil, err
	}
	offsets, cookies, _ := o.columns()

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
		count: uint32(len(offsets)), pid: uint32(o.PID),
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
