package console

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxKeptLines bounds the lines that wait for their reader. More are counted and dropped.
const maxKeptLines = 10_000

const eraseLine = "\r\x1b[K" // ECMA-48: carriage return, erase to the end of the line

// StatusWriter writes lines that scroll by above a status line, which stays.
type StatusWriter struct {
	mu     sync.Mutex
	w      io.Writer
	status string // empty: none is shown

	// redirect receives the lines while a screen has the terminal; nil: no screen has it.
	redirect func(line string)
	kept     []string // redirected lines
	lost     int      // redirected lines beyond maxKeptLines
}

// Write writes whole lines above the status line.
func (s *StatusWriter) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.redirect != nil {
		s.keep(string(lines))
		return len(lines), nil
	}
	if s.status == "" {
		return s.w.Write(lines)
	}

	if _, err := io.WriteString(s.w, eraseLine+string(lines)+s.status); err != nil {
		return 0, err
	}

	return len(lines), nil
}

// setStatus replaces the status line. An empty one removes it.
func (s *StatusWriter) setStatus(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.status != "" || line != "" {
		fmt.Fprint(s.w, eraseLine+line)
	}
	s.status = line
}

// keep hands lines to the screen, and keeps them for the terminal.
func (s *StatusWriter) keep(lines string) {
	for line := range strings.Lines(lines) {
		line = strings.TrimSuffix(line, "\n")
		s.redirect(line)

		if len(s.kept) == maxKeptLines {
			s.lost++
			continue
		}
		s.kept = append(s.kept, line)
	}
}

// Redirect hands all lines to a function until Resume. The function may not wait for the terminal.
func (s *StatusWriter) Redirect(to func(line string)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.redirect = to
}

// Resume writes the lines that were redirected, and ends the redirection. It may be called again.
func (s *StatusWriter) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, line := range s.kept {
		fmt.Fprintln(s.w, line)
	}

	if s.lost > 0 {
		fmt.Fprint(s.w, lostText(s.lost))
	}

	s.redirect, s.kept, s.lost = nil, nil, 0
}

func lostText(lines int) string { return fmt.Sprintf("%d more lines were logged\n", lines) }

// AsyncWriter writes in the background, so that a full pipe holds up no trace.
type AsyncWriter struct {
	w io.Writer

	mu      sync.Mutex
	changed *sync.Cond
	pending [][]byte
	lost    int           // writes that came while maxKeptLines were pending
	idle    chan struct{} // closed while nothing is pending
}

// flushTimeout is how long allocscope waits for a reader at its end.
const flushTimeout = 2 * time.Second

func newAsyncWriter(w io.Writer) *AsyncWriter {
	a := &AsyncWriter{w: w, idle: make(chan struct{})}
	close(a.idle)
	a.changed = sync.NewCond(&a.mu)

	go a.run()
	return a
}

// Write copies some lines. It returns no error: there is nowhere left to report one.
func (a *AsyncWriter) Write(lines []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if len(a.pending) == maxKeptLines {
		a.lost++
		return len(lines), nil
	}

	if len(a.pending) == 0 {
		a.idle = make(chan struct{})
	}

	a.pending = append(a.pending, slices.Clone(lines))
	a.changed.Signal()
	return len(lines), nil
}

func (a *AsyncWriter) run() {
	a.mu.Lock()
	defer a.mu.Unlock()

	for {
		for len(a.pending) == 0 {
			a.changed.Wait()
		}

		lines := a.pending[0]
		a.mu.Unlock()
		_, _ = a.w.Write(lines)
		a.mu.Lock()
		a.pending = a.pending[1:]

		if len(a.pending) == 0 && a.lost > 0 {
			a.pending = append(a.pending, []byte(lostText(a.lost)))
			a.lost = 0
		}
		if len(a.pending) == 0 {
			close(a.idle)
		}
	}
}

// flush waits until all lines have been written, but not longer than flushTimeout.
func (a *AsyncWriter) flush() {
	a.mu.Lock()
	idle := a.idle
	a.mu.Unlock()

	select {
	case <-idle:
	case <-time.After(flushTimeout):
	}
}
