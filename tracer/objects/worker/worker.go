// Package worker reads the objects of processes in a child process of allocscope, at idle priority.
//
// A thread of allocscope itself would not do. Go's garbage collector waits until each thread has
// reached a safe point, and on a busy machine a thread at idle priority takes seconds to: samples
// and snapshots would wait as long. A child of its own also gives back the memory that a search
// takes, and the trace goes on even if a hostile process makes the child fail.
package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/reexec"
)

// Name is argument 0 of the child process.
const Name = "allocscope-objects"

// A Request names the data to read of a process: a census, who keeps the objects of suspects, or the
// containers of earlier searches.
type Request struct {
	PID int
	// Program differs where the process executes another program. The first census of a program
	// is the CensusOptions.Before of all later ones.
	Program uint64

	// Census has the options of a census, but for Before; nil: it is a search.
	Census *objects.CensusOptions

	Suspects []objects.Suspect
	Limit    time.Duration // of the search's CPU time
	// Traced is how long the program has been traced.
	Traced time.Duration
	// IsSweep: whether anything refers to the objects, and no search for keepers.
	IsSweep bool

	// Reread are earlier searches whose containers are read once more; nil: it is another request.
	Reread []keeper.Search

	// Urgent and Timeout are set by Ask: that the child runs at normal priority, and the rest of
	// the caller's time; 0: there is no limit.
	Urgent  bool
	Timeout time.Duration
}

// A Response answers a Request.
type Response struct {
	Census   *objects.Census
	Searches []keeper.Search

	// Error is why there is no answer, empty if there is one. NoPython: it was objects.ErrNoPython.
	Error    string
	NoPython bool
	// CPUTime is the CPU time of the child so far, and of the process that reads for it.
	CPUTime time.Duration
}

// idleTimeout is how long a request waits for idle CPUs: a job that keeps all of them busy would never
// have an answer.
const idleTimeout = 10 * time.Second

// A Worker asks the child. It starts the child when it first needs one. The zero value is ready to
// use.
type Worker struct {
	asking      sync.Mutex    // held during a request
	idleTimeout time.Duration // of tests; 0: idleTimeout

	mu    sync.Mutex // guards the fields below
	child *child     // nil: there is none
	used  time.Duration
	hurry bool // the child runs at normal priority
}

// A child is the child process.
type child struct {
	command  *exec.Cmd
	encoder  *gob.Encoder
	decoder  *gob.Decoder
	stdin    io.Closer
	stdout   io.Closer
	errors   *firstBytes
	reported time.Duration // CPU time by its last response
}

// Ask has the child do a request. It may be called from any goroutine. The error wraps the error of
// ctx, or objects.ErrNoPython. A child that is given up for the end of ctx forgets the first
// censuses.
func (w *Worker) Ask(ctx context.Context, ask Request) (*Response, error) {
	w.asking.Lock()
	defer w.asking.Unlock()

	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := w.start()
	if err != nil {
		return nil, fmt.Errorf("start the process that reads objects: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		ask.Timeout = max(1, time.Until(deadline)*9/10) // the rest is for the answer
	}

	w.mu.Lock()
	ask.Urgent = w.hurry
	w.mu.Unlock()

	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	answered := make(chan struct{})
	defer close(answered)
	go w.hurryWhenLate(c, answered)
	var answer Response
	err = c.encoder.Encode(ask)
	if err == nil {
		err = c.decoder.Decode(&answer)
	}
	if err != nil {
		w.giveUp()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("ask the process that reads objects: %w%s", err, c.errors.text())
	}

	w.mu.Lock()
	c.reported = answer.CPUTime
	w.mu.Unlock()
	switch {
	case answer.NoPython:
		return nil, &noPythonError{answer.Error}
	case answer.Error != "":
		return nil, errors.New(answer.Error)
	}

	return &answer, nil
}

// A noPythonError is objects.ErrNoPython in the words of the child.
type noPythonError struct{ text string }

func (e *noPythonError) Error() string { return e.text }
func (e *noPythonError) Unwrap() error { return objects.ErrNoPython }

// Hurry gives the child normal priority from now on, also in the middle of a request: somebody waits.
func (w *Worker) Hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hurry = true
	if w.child != nil {
		setPriority(w.child.command.Process.Pid, unix.SCHED_NORMAL)
	}
}

// hurryWhenLate gives the child normal priority if a request is not answered in time. It repeats
// that, as the child may only then begin, with idle priority.
func (w *Worker) hurryWhenLate(c *child, answered <-chan struct{}) {
	ticker := time.NewTicker(cmp.Or(w.idleTimeout, idleTimeout))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			setPriority(c.command.Process.Pid, unix.SCHED_NORMAL)
		case <-answered:
			return
		}
	}
}

// CPUTime returns the CPU time of the child, and of those before it.
func (w *Worker) CPUTime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used + w.child.cpuTime()
}

// Close ends the child.
func (w *Worker) Close() {
	w.mu.Lock()
	if w.child != nil {
		w.child.kill() // Ask returns then
	}
	w.mu.Unlock()

	w.asking.Lock()
	defer w.asking.Unlock()
	w.giveUp()
}

// start starts the child, unless there is one.
func (w *Worker) start() (*child, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.child != nil {
		return w.child, nil
	}

	c := &child{errors: &firstBytes{}}
	c.command = &exec.Cmd{
		Path: reexec.Executable, Args: []string{Name}, Stderr: c.errors,
		// Above so much memory, less garbage waits for its collection.
		Env:       []string{"GOMAXPROCS=1", "GOGC=50", "GOMEMLIMIT=1GiB"},
		WaitDelay: endTimeout,
	}
	stdin, err := c.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	c.encoder, c.decoder = gob.NewEncoder(stdin), gob.NewDecoder(stdout)
	c.stdin, c.stdout = stdin, stdout
	w.child = c
	return c, nil
}

// endTimeout is how long the end of the child is waited for, and the end of its standard error,
// which the process that reads for it has, too. That one may hang in a read for ever.
const endTimeout = time.Second

// giveUp ends the child if there is one. The caller holds asking.
func (w *Worker) giveUp() {
	w.mu.Lock()
	c := w.child
	if c != nil {
		w.used += c.cpuTime()
		w.child = nil
	}
	w.mu.Unlock()
	if c == nil {
		return
	}

	c.kill()
	_ = c.stdin.Close()
	ended := make(chan struct{})
	go func() {
		_ = c.command.Wait() // it was killed
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * endTimeout):
	}
}

// kill ends the child, and the wait for its answer. At idle priority it might not get the CPU
// to end.
func (c *child) kill() {
	setPriority(c.command.Process.Pid, unix.SCHED_NORMAL)
	_ = c.command.Process.Kill()
	_ = c.stdout.Close()
}

// cpuTime returns the CPU time of the child; 0 of nil. The process that reads for it counts when it
// answers.
func (c *child) cpuTime() time.Duration {
	if c == nil {
		return 0
	}
	used, _ := hostile.CPUTimeOf(c.command.Process.Pid) // 0: it has ended
	return max(c.reported, used)
}

// firstBytes keeps the first bytes that are written: of the child's errors.
type firstBytes struct {
	mu   sync.Mutex
	kept []byte
}

const maxErrorBytes = 2000

// Write implements io.Writer.
func (f *firstBytes) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, b[:min(len(b), maxErrorBytes-len(f.kept))]...)
	return len(b), nil
}

// text is the first line, for an error.
func (f *firstBytes) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	line, _, _ := bytes.Cut(f.kept, []byte("\n"))
	if len(line) == 0 {
		return ""
	}
	return " (" + growth.Printable(string(line)) + ")"
}
