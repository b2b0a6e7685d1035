package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// newLogger writes lines for people: "warn: text".
func newLogger(w io.Writer, debug bool) *slog.Logger {
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	return slog.New(&lineHandler{to: screenOf(w), level: level})
}

type lineHandler struct {
	to    *screen
	level slog.Level
}

// Enabled implements slog.Handler.
func (h *lineHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements slog.Handler.
func (h *lineHandler) Handle(_ context.Context, record slog.Record) error {
	line := record.Message
	if record.Level != slog.LevelInfo {
		line = strings.ToLower(record.Level.String()) + ": " + line
	}
	record.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%s", a.Key, a.Value)
		return true
	})
	_, err := io.WriteString(h.to, line+"\n")
	return err
}

// WithAttrs implements slog.Handler. allocscope uses none.
func (h *lineHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler. allocscope uses none.
func (h *lineHandler) WithGroup(string) slog.Handler { return h }

// A screen is where lines scroll by above a status line that stays. On anything but a terminal there is no status line.
type screen struct {
	mu     sync.Mutex
	w      io.Writer
	status string
	// aside takes what is written while something else has the terminal; nil: nothing has. kept is what it took.
	aside func(line string)
	kept  []string
	lost  int
}

// mostKept lines are written again.
const mostKept = 10_000

var screens sync.Map // io.Writer -> *screen

// screenOf gives the one screen of a writer.
func screenOf(w io.Writer) *screen {
	s, _ := screens.LoadOrStore(w, &screen{w: w})
	return s.(*screen)
}

const eraseLine = "\r\x1b[K"

// Write writes whole lines above the status line.
func (s *screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aside != nil {
		s.setAside(string(lines))
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

// setStatus replaces the status line; an empty one takes it away.
func (s *screen) setStatus(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != "" || line != "" {
		fmt.Fprint(s.w, eraseLine+line)
	}
	s.status = line
}

// setAside shows lines where the terminal is taken, and keeps them.
func (s *screen) setAside(lines string) {
	for line := range strings.Lines(lines) {
		line = strings.TrimSuffix(line, "\n")
		s.aside(line)
		if len(s.kept) == mostKept {
			s.lost++
			continue
		}
		s.kept = append(s.kept, line)
	}
}

// divert gives lines to somebody else, who may not wait for the screen, until resume.
func (s *screen) divert(aside func(line string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside = aside
}

// resume writes what was diverted, and what comes from now on.
func (s *screen) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.kept {
		fmt.Fprintln(s.w, line)
	}
	if s.lost > 0 {
		fmt.Fprintf(s.w, "%d more lines were logged\n", s.lost)
	}
	s.aside, s.kept, s.lost = nil, nil, 0
}
