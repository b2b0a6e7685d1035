// Package console writes the reports of allocscope to standard error: log lines for people, and the
// status line of a trace.
package console

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/term"
)

// Console is standard error. It implements io.Writer.
type Console struct {
	*StatusWriter

	terminal *os.File     // nil: standard error is no terminal
	async    *AsyncWriter // nil: lines are written at once
}

// New returns the console on a writer. A terminal is written to at once, any other file in the
// background: a trace must not wait for the reader of a pipe.
func New(w io.Writer) *Console {
	c := &Console{StatusWriter: &StatusWriter{w: w}}

	file, ok := w.(*os.File)
	switch {
	case ok && term.IsTerminal(int(file.Fd())):
		c.terminal = file
	case ok:
		c.async = newAsyncWriter(file)
		c.w = c.async
	}
	return c
}

// IsTerminal reports whether standard error is a terminal.
func (c *Console) IsTerminal() bool { return c.terminal != nil }

// Flush waits until all lines have been written, but not longer than flushTimeout.
func (c *Console) Flush() {
	if c.async != nil {
		c.async.flush()
	}
}

// Logger returns a logger of lines for people, of a level and above: "warn: text".
func (c *Console) Logger(level slog.Level, color Color) *slog.Logger {
	return slog.New(&lineHandler{to: c, level: level, hasColor: color.Enabled(c)})
}

type lineHandler struct {
	to       io.Writer
	level    slog.Level
	hasColor bool
}

// Enabled implements slog.Handler.
func (h *lineHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements slog.Handler.
func (h *lineHandler) Handle(_ context.Context, record slog.Record) error {
	line := record.Message
	if record.Level != slog.LevelInfo {
		word := strings.ToLower(record.Level.String()) + ":"
		if h.hasColor {
			word = colored(record.Level, word)
		}
		line = word + " " + line
	}

	record.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%s", a.Key, a.Value)
		return true
	})

	if IsTerminal(h.to) {
		line = strings.Join(wrap(line, Width(h.to)), "\n")
	}
	_, err := io.WriteString(h.to, line+"\n")
	return err
}

// WithAttrs implements slog.Handler. allocscope uses none.
func (h *lineHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler. allocscope uses none.
func (h *lineHandler) WithGroup(string) slog.Handler { return h }
