package calibrate

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate/child"
	"github.com/allocscope/allocscope/tracer/probe"
)

// ErrFiltered means that a process with a seccomp filter may die where a return is probed. On
// x86-64 since Linux 6.11 the code by which a probed function returns makes a system call, in the
// process. Filters of containers refuse it, as they refuse all calls that they do not know. Newer
// kernels apply no filter to it ("seccomp: passthrough uretprobe systemcall without filtering").
var ErrFiltered = errors.New("return probes would end a process with a seccomp filter on this kernel")

const filterTimeout = 10 * time.Second

// CheckFilter returns ErrFiltered if return probes end a process whose seccomp filter does not know
// them. It finds out with a child process: the version of a kernel does not tell. Other errors mean
// that it is not known.
func CheckFilter(mode probe.Mode, programs probe.Programs) error {
	if runtime.GOARCH != "amd64" { // the others return by a breakpoint
		return nil
	}
	runtime.LockOSThread() // the child does not outlive the thread
	defer runtime.UnlockOSThread()

	err := checkFilter(func(c *childProcess) (io.Closer, error) {
		return attachReturn(c, mode, programs)
	})
	if err != nil && !errors.Is(err, ErrFiltered) {
		return fmt.Errorf("check whether return probes are safe under seccomp filters: %w", err)
	}
	return err
}

// attachReturn probes the return of the child's calloc.
func attachReturn(c *childProcess, mode probe.Mode, programs probe.Programs) (io.Closer, error) {
	calloc := probe.Function{Name: "calloc", Form: bpf.CallCalloc}
	file, err := c.sites(probe.Site{Function: calloc, Offset: c.functions.Calloc})
	if err != nil {
		return nil, err
	}
	links, err := probe.AttachReturn(mode, file, programs, c.pid())
	return closer(links), err
}

type closer []link.Link

func (c closer) Close() error { return probe.Close(c) }

// checkFilter calls prepare for the child, which probes a return in it.
func checkFilter(prepare func(*childProcess) (io.Closer, error)) error {
	c, err := startChild(filterTimeout)
	if err != nil {
		return err
	}
	probes, err := prepare(c)
	if err != nil {
		c.end()
		return err
	}

	var refusal uint32
	err = c.ask(child.OrderFilter, &refusal)
	c.end()
	_ = probes.Close() // its process is gone

	switch {
	case errors.Is(err, io.EOF), errors.Is(err, unix.EPIPE):
		return ErrFiltered
	case err == nil && refusal != 0 && unix.Errno(refusal) != unix.EINVAL: // a kernel without filters
		return fmt.Errorf("install a filter: %w", unix.Errno(refusal))
	}
	return err
}
