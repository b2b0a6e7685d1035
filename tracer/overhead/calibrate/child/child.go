// Package child is the child process on which costs are measured: the running executable once
// more, under another name. Its init function takes over before most of the program has started,
// and calls small functions in loops that nothing else calls. The package imports hardly anything,
// so that the child starts fast.
package child

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/reexec"
)

// Name is the argument 0 of the child.
const Name = "allocscope-calibration"

// Environment of the child. No signal and no garbage collection interrupts the loops: the Go
// runtime could not unwind a stack whose return address a uretprobe has replaced.
var Environment = []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"}

// Functions are the addresses of the functions that the child calls. Each can be probed at its
// first instruction.
type Functions struct {
	// Malloc, Free and Calloc start with an instruction that the kernel emulates.
	Malloc, Free, Calloc uint64
	// Stepped starts with an instruction that the kernel single-steps.
	Stepped uint64
}

// The child's orders, a byte each. It exits at the end of its input.
const (
	OrderCalls = 'c' // the answer is a Calls
	OrderPages = 'p' // the answer is a float64: ns for the first touch of a page
	// OrderFilter installs a seccomp filter that refuses the system calls of the kernel's probes,
	// and calls Calloc. The answer is a uint32: the error number of the installation, or 0.
	OrderFilter = 'f'
)

// Calls are ns of the thread's CPU time for one call of each function, the median of several
// rounds.
type Calls struct {
	Malloc, Free, Calloc, Stepped float64
	// ShimPair is the work of the preloaded library in a malloc and its free, neither sampled.
	ShimPair float64
}

func init() {
	reexec.Register(Name, reexec.Main(Name, func() error { return serve(os.Stdin, os.Stdout) }))
}

// serve writes the functions' addresses, and answers orders until their end.
func serve(orders io.Reader, answers io.Writer) error {
	runtime.LockOSThread() // the clock is the thread's
	pages, err := newPages()
	if err != nil {
		return err
	}

	answer := any(Functions{uint64(malloc), uint64(free), uint64(calloc), uint64(stepped)})
	for {
		if err := binary.Write(answers, binary.NativeEndian, answer); err != nil {
			return err
		}
		var order [1]byte
		if _, err := io.ReadFull(orders, order[:]); err != nil {
			return nil
		}
		if answer, err = measure(order[0], pages); err != nil {
			return err
		}
	}
}

func measure(order byte, pages []byte) (any, error) {
	switch order {
	case OrderPages:
		return touchPages(pages)
	case OrderFilter:
		return callFiltered(), nil
	}
	return callFunctions(), nil
}

// The addresses of the functions in call_GOARCH.s.
var malloc, free, calloc, stepped uintptr

// shimMalloc and shimFree have the instructions of the preloaded library's functions where nothing is
// sampled (malloc and free of shim/shim.c), and jump to plain as these do to the next allocator's.
var shimMalloc, shimFree, plain uintptr

// call calls a function so many times, at least once, with this first argument, and 0 as the
// second.
func call(function uintptr, times int, argument uintptr)

// The calls of each function in a round, and the pages that are touched. A single-stepped call
// takes several times as long as another.
const (
	callsPerRound   = 64
	pairsPerRound   = 1024 // of some ns each
	steppedPerRound = 8
	pagesPerRound   = 64
)

// Rounds go on for roundsTime ns of CPU time, and there are at least minRounds for a median.
const (
	roundsTime = 4e6
	minRounds  = 5
)

// callFunctions asks for 0 bytes, of which no sample is ever taken, and frees an address that no
// object has.
func callFunctions() Calls {
	const noBytes, unknown = 0, 1
	var mallocs, frees, callocs, steps, pairs []float64
	_ = forRounds(func() error {
		pairs = append(pairs, timePerCall(shimMalloc, pairsPerRound, noBytes)+
			timePerCall(shimFree, pairsPerRound, unknown)-
			2*timePerCall(plain, pairsPerRound, unknown))
		mallocs = append(mallocs, timePerCall(malloc, callsPerRound, noBytes))
		frees = append(frees, timePerCall(free, callsPerRound, unknown))
		callocs = append(callocs, timePerCall(calloc, callsPerRound, noBytes))
		steps = append(steps, timePerCall(stepped, steppedPerRound, noBytes))
		return nil
	})

	return Calls{
		Malloc: median(mallocs), Free: median(frees), Calloc: median(callocs),
		Stepped: median(steps), ShimPair: median(pairs),
	}
}

func timePerCall(function uintptr, times int, argument uintptr) float64 {
	began := threadTime()
	call(function, times, argument)
	return (threadTime() - began) / float64(times)
}

// The system calls of probes, arch/x86/entry/syscalls/syscall_64.tbl. Only the kernel's own code in
// a process may call them.
const (
	sysUretprobe = 335
	sysUprobe    = 336
)

// callFiltered calls calloc under a filter like Docker's, which refuses the system calls that it
// does not know. The thread keeps the filter.
func callFiltered() uint32 {
	const numberOffset = 0 // in struct seccomp_data, <linux/seccomp.h>
	refuse := uint32(unix.SECCOMP_RET_ERRNO | unix.EPERM)
	rules := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: numberOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: sysUretprobe, Jt: 1},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: sysUprobe, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}

	filter := unix.SockFprog{Len: uint16(len(rules)), Filter: &rules[0]}

	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
			uintptr(unsafe.Pointer(&filter)), 0, 0)
	}
	if number := unix.Errno(0); errors.As(err, &number) {
		return uint32(number)
	}

	const noBytes = 0
	call(calloc, 1, noBytes)
	return 0
}

func newPages() ([]byte, error) {
	length := pagesPerRound * os.Getpagesize()
	pages, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err == nil {
		_ = unix.Madvise(pages, unix.MADV_NOHUGEPAGE) // kernels without huge pages refuse
	}
	return pages, err
}

// touchPages reads pages that are not resident: the kernel maps the zero page for each. The answer
// is the fastest round, as the event costs little beside the fault.
func touchPages(pages []byte) (ns float64, err error) {
	var rounds []float64
	var read byte
	err = forRounds(func() error {
		if err := unix.Madvise(pages, unix.MADV_DONTNEED); err != nil {
			return err
		}
		began := threadTime()
		for at := 0; at < len(pages); at += len(pages) / pagesPerRound {
			read += pages[at]
		}
		rounds = append(rounds, (threadTime()-began)/pagesPerRound)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return slices.Min(rounds) + float64(read), nil // the pages are zeros
}

func forRounds(do func() error) error {
	began := threadTime()
	for round := 0; round < minRounds || threadTime()-began < roundsTime; round++ {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// threadTime returns the CPU time of the thread in ns.
func threadTime() float64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) // the clock always exists
	return float64(now.Nano())
}
