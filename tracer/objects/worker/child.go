package worker

import (
	"context"
	"encoding/gob"
	"errors"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/reexec"
)

func init() { reexec.Register(Name, reexec.Main(Name, serve)) }

// A firstCensus is the first census of a program.
type firstCensus struct {
	program uint64
	census  *objects.Census
}

// serve answers requests until standard input is closed.
func serve() error {
	// The terminal and systemd signal all processes. allocscope ends the trace in order, and then
	// this one.
	signal.Ignore(unix.SIGINT, unix.SIGHUP, unix.SIGTERM)
	runtime.LockOSThread() // the main one, whose priority is set

	requests := make(chan Request)
	go func() {
		decoder := gob.NewDecoder(os.Stdin)
		for {
			var ask Request
			if decoder.Decode(&ask) != nil {
				os.Exit(0) // also in the middle of a search: nobody waits for it
			}
			requests <- ask
		}
	}()

	encoder, firsts := gob.NewEncoder(os.Stdout), make(map[int]firstCensus)
	for ask := range requests {
		setPriority(0, unix.SCHED_NORMAL)
		answer, err := answer(ask, firsts)
		if err != nil {
			answer = Response{Error: err.Error(), NoPython: errors.Is(err, objects.ErrNoPython)}
		}
		answer.CPUTime = process.OwnCPUTime()
		if err := encoder.Encode(answer); err != nil {
			return err
		}
	}

	return nil
}

// setPriority sets the policy of a thread: unix.SCHED_IDLE, or unix.SCHED_NORMAL; 0 is the calling thread.
// A thread may not be able to leave idle priority without CAP_SYS_NICE. It stays there.
func setPriority(thread int, policy uint32) {
	_ = unix.SchedSetAttr(thread, &unix.SchedAttr{Policy: policy}, 0)
}

func answer(ask Request, firsts map[int]firstCensus) (answer Response, err error) {
	ctx := context.Background()
	if ask.Timeout != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ask.Timeout)
		defer cancel()
	}

	p, err := process.Open(ask.PID)
	if err != nil {
		return answer, err
	}
	defer p.Close()
	process.KeepMemory(p)
	// Open has started the process that reads for this one, at normal priority. That holds the lock
	// of the target's address space for a moment: if it had to wait for a CPU then, so would the
	// job.
	if !ask.Urgent {
		setPriority(0, unix.SCHED_IDLE)
	}

	heap, err := objects.Open(p)
	if err != nil {
		return answer, err
	}
	defer heap.Close()
	// Within idle time alone, a pass would take long by the clock on a busy machine, and prove
	// nothing.
	heap.Traced, heap.BeforeSweep = ask.Traced, func() { setPriority(0, unix.SCHED_NORMAL) }

	switch {
	case ask.Reread != nil:
		answer.Searches, err = objects.Reread(heap, ask.Reread)
		return answer, err
	case ask.IsSweep:
		answer.Searches, err = heap.Sweep(ctx, ask.Suspects, ask.Limit)
		return answer, err
	case ask.Census == nil:
		answer.Searches, err = heap.Search(ctx, ask.Suspects, ask.Limit)
		return answer, err
	}

	forgetEnded(firsts)
	options := *ask.Census
	if f, ok := firsts[ask.PID]; ok && f.program == ask.Program {
		options.Before = f.census
	}
	answer.Census, err = heap.Census(ctx, options)
	if err == nil && options.Before == nil {
		firsts[ask.PID] = firstCensus{ask.Program, answer.Census}
	}
	return answer, err
}

// forgetEnded deletes the censuses of processes that have ended: they take memory for nothing.
func forgetEnded(firsts map[int]firstCensus) {
	for pid := range firsts {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			delete(firsts, pid)
		}
	}
}
