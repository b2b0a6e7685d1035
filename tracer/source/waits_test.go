package source

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestWaits reads from the address space of a program that maps memory all the time, until a thread
// of it has waited for that.
func TestWaits(t *testing.T) {
	tracertest.NeedsRoot(t)
	k, err := kernel.Load(kernel.Config{MaxLive: 16, MaxStacks: 16, MaxFaults: 16})
	tracertest.NoError(t, err)
	defer k.Close()
	links, err := attachWaits(k)
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("this kernel does not report waits: %v", err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer func() { tracertest.NoError(t, probe.Close(links)) }()

	target := tracertest.Start(t, tracertest.Build(t, "storms.c", "-pthread"), "map", "0", "0", "")
	target.Await(fmt.Sprintf("ready %d planted 0", target.PID()))
	p := tracertest.Must(process.Open(target.PID()))(t)
	defer p.Close()
	tracertest.NoError(t, k.SetTraced(target.PID(), true))

	stop := make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	defer close(stop)
	reading.Go(func() { readUntil(stop, p) })

	for {
		target.Do("1") // a second of mapping
		busiest := tracertest.Must(k.TakeBusiest())(t)
		t.Logf("a thread has waited for %v", busiest.Waited)
		if busiest.Waited > 0 {
			return
		}
	}
}

func readUntil(stop chan struct{}, p *process.Process) {
	for {
		select {
		case <-stop:
			return
		default:
			_, _, _ = p.Rollup()
		}
	}
}
