package record

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/allocscope/allocscope/growth"
)

const (
	// MaxMarkBytes bounds the text of a mark, and MaxMarks the marks of a trace.
	MaxMarkBytes = 200
	MaxMarks     = 10_000
)

// A Mark is a line of text at a moment.
type Mark struct {
	At   time.Time
	Text string // as MarkText returns it
}

// MarkText returns the text of a mark: printable, one line, at most MaxMarkBytes. It is empty for a
// blank line.
func MarkText(raw string) string {
	text := strings.TrimSpace(growth.Printable(strings.TrimSpace(raw)))
	if len(text) <= MaxMarkBytes {
		return text
	}

	end := MaxMarkBytes
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(text[:end])
}

// Marks are the marks that a recorder has not recorded yet. Its methods may be called from several
// goroutines. The zero value has none.
type Marks struct {
	mu       sync.Mutex
	pending  []Mark
	received int
	excess   int
}

// Add adds a mark. It returns false if there have been MaxMarks.
func (m *Marks) Add(text string, at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.received == MaxMarks {
		m.excess++
		return false
	}

	m.received++
	m.pending = append(m.pending, Mark{at, text})
	return true
}

// Drain returns the marks since the last call, in order.
func (m *Marks) Drain() []Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks := m.pending
	m.pending = nil
	return marks
}

// Dropped returns how many marks were dropped because there had been MaxMarks.
func (m *Marks) Dropped() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.excess
}
