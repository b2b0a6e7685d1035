// Package child is the process of our own on which prices are measured: the running executable once more, under another
// name. It is caught before most of the program has begun, and runs loops over small functions that are called nowhere
// else. It imports hardly anything, so that it is there at once.
package child

import (
	"encoding/binary"
	"io"
	"os"
	"runtime"
)

// Name under which the executable must be started, as its argument 0, to be the child.
const Name = "allocscope-calibration"

// Environment of the child: nothing interrupts the loops, and nothing looks at a stack whose return address a probe has
// replaced.
var Environment = []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"}

// Functions are the addresses of those that the child calls. Each can be probed at its first instruction.
type Functions struct {
	// Malloc, Free and Calloc begin as functions usually do: on x86-64 with an instruction that the kernel emulates.
	Malloc, Free, Calloc uint64
	// Stepped begins with one that it single-steps.
	Stepped uint64
}

// The child's orders, a byte each. It exits at the end of its input.
const (
	OrderCalls = 'c' // answered by Calls
	OrderPages = 'p' // answered by a float64: ns for the first touch of a page
)

// Calls are ns of the thread's CPU time for one call of each function: the median of several rounds.
type Calls struct{ Malloc, Free, Calloc, Stepped float64 }

func init() {
	if len(os.Args) == 0 || os.Args[0] != Name {
		return
	}
	runtime.LockOSThread() // the clock is the thread's
	if err := serve(os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// serve says where the functions are, and does what it is told until the end of its orders.
func serve(orders io.Reader, answers io.Writer) error {
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
	if order == OrderPages {
		return touchPages(pages)
	}
	return callFunctions(), nil
}

// The functions that may be probed, as addresses: see call_GOARCH.s.
var malloc, free, calloc, stepped uintptr

// call calls a function so many times, at least once, with that first argument, and 0 as the second.
func call(function uintptr, times int, argument uintptr)
