package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// A backlog writes in the background what it is given, so that who logs never waits for who reads: a pipe that nobody empties must not
// hold up a trace.
type backlog struct {
	w io.Writer

	mu      sync.Mutex
	more    *sync.Cond
	waiting [][]byte
	lost    int           // what came while mostKept were waiting
	idle    chan struct{} // closed while nothing waits
}

// patience is how long allocscope waits for a reader at its end.
const patience = 2 * time.Second

func newBacklog(w io.Writer) *backlog {
	b := &backlog{w: w, idle: make(chan struct{})}
	close(b.idle)
	b.more = sync.NewCond(&b.mu)
	go b.run()
	return b
}

// Write takes some lines. It has no errors: nobody could be told.
func (b *backlog) Write(lines []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == mostKept {
		b.lost++
		return len(lines), nil
	}
	if len(b.waiting) == 0 {
		b.idle = make(chan struct{})
	}
	b.waiting = append(b.waiting, slices.Clone(lines))
	b.more.Signal()
	return len(lines), nil
}

func (b *backlog) run() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for len(b.waiting) == 0 {
			b.more.Wait()
		}
		lines := b.waiting[0]
		b.mu.Unlock()
		_, _ = b.w.Write(lines)
		b.mu.Lock()
		b.waiting = b.waiting[1:]
		if len(b.waiting) == 0 && b.lost > 0 {
			b.waiting = append(b.waiting, fmt.Appendf(nil, "%d more lines were logged\n", b.lost))
			b.lost = 0
		}
		if len(b.waiting) == 0 {
			close(b.idle)
		}
	}
}

// flush waits until all has been written, but no longer than patience.
func (b *backlog) flush() {
	b.mu.Lock()
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(patience):
	}
}
