package child

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// What is done in a round.
const (
	times        = 64 // calls of each function
	steppedTimes = 8  // of that whose instruction is single-stepped, which takes several times as long
	pagesTouched = 64
)

// Rounds go on for so many ns of CPU time, but there are as many as a median needs.
const (
	roundsTime  = 4e6
	leastRounds = 5
)

// callFunctions asks for no bytes, of which no sample is ever taken, and frees what nobody has.
func callFunctions() Calls {
	const none, unknown = 0, 1
	var mallocs, frees, callocs, steps []float64
	_ = forRounds(func() error {
		mallocs = append(mallocs, perCall(malloc, times, none))
		frees = append(frees, perCall(free, times, unknown))
		callocs = append(callocs, perCall(calloc, times, none))
		steps = append(steps, perCall(stepped, steppedTimes, none))
		return nil
	})
	return Calls{Malloc: median(mallocs), Free: median(frees), Calloc: median(callocs), Stepped: median(steps)}
}

func perCall(function uintptr, times int, argument uintptr) float64 {
	began := threadTime()
	call(function, times, argument)
	return (threadTime() - began) / float64(times)
}

func newPages() ([]byte, error) {
	length := pagesTouched * os.Getpagesize()
	pages, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err == nil {
		_ = unix.Madvise(pages, unix.MADV_NOHUGEPAGE) // kernels without huge pages refuse
	}
	return pages, err
}

// touchPages reads pages none of which is there, and which the kernel need not fill for that. The fastest round is the
// answer: what is sought is a small part of it.
func touchPages(pages []byte) (ns float64, err error) {
	var all []float64
	var read byte
	err = forRounds(func() error {
		if err := unix.Madvise(pages, unix.MADV_DONTNEED); err != nil {
			return err
		}
		began := threadTime()
		for at := 0; at < len(pages); at += len(pages) / pagesTouched {
			read += pages[at]
		}
		all = append(all, (threadTime()-began)/pagesTouched)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return slices.Min(all) + float64(read), nil // they are zeros
}

func forRounds(do func() error) error {
	began := threadTime()
	for round := 0; round < leastRounds || threadTime()-began < roundsTime; round++ {
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

// threadTime is the CPU time of the thread in ns.
func threadTime() float64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) // the clock always exists
	return float64(now.Nano())
}
