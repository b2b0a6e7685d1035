package main

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/allocscope/allocscope/tracer/process"
)

// A timedMark is a mark and when it came.
type timedMark struct {
	At   time.Time
	Text string // printable, one line, at most maxMark bytes
}

const (
	maxMark   = 200    // bytes of a mark
	mostMarks = 10_000 // that a trace takes
)

// marker takes the marks of a trace, from `allocscope mark` (listen) and from what a program prints (follow). Its methods
// may be called from several goroutines.
type marker struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	waiting   []timedMark
	kept      int
	excess    int
	listeners map[int]*net.UnixListener // by PID
}

func newMarker() *marker {
	m := &marker{listeners: make(map[int]*net.UnixListener)}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// add takes a mark; false: there have been too many.
func (m *marker) add(text string, at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == mostMarks {
		m.excess++
		return false
	}
	m.kept++
	m.waiting = append(m.waiting, timedMark{at, text})
	return true
}

// take gives the marks that have come since the last call, in order.
func (m *marker) take() []timedMark {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks := m.waiting
	m.waiting = nil
	return marks
}

// dropped is how many marks were not taken because there had been mostMarks.
func (m *marker) dropped() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.excess
}

// close stops taking marks and waits until nobody adds any.
func (m *marker) close() {
	m.cancel()
	m.mu.Lock()
	for pid, l := range m.listeners {
		_ = l.Close() // nothing is lost
		delete(m.listeners, pid)
	}
	m.mu.Unlock()
	m.running.Wait()
}

// markText makes a mark of what somebody has written; empty if there is nothing in it.
func markText(raw string) string {
	text := strings.TrimSpace(process.Printable(strings.TrimSpace(raw)))
	if len(text) <= maxMark {
		return text
	}
	end := maxMark
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(text[:end])
}
