package console

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestColor(t *testing.T) {
	_, terminal := tracertest.OpenTerminal(t)
	for _, c := range []struct {
		value, noColor, term  string
		onTerminal, elsewhere bool
	}{
		{"auto", "", "xterm", true, false},
		{"auto", "1", "xterm", false, false},
		{"auto", "yes", "xterm", false, false},
		{"auto", "", "dumb", false, false},
		{"auto", "", "", false, false},
		{"never", "", "xterm", false, false},
		{"always", "1", "dumb", true, true},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)

		var color Color
		if err := color.Set(c.value); err != nil || color.String() != c.value {
			t.Errorf("%s: %v, %v", c.value, color, err)
		}
		if got := color.Enabled(terminal); got != c.onTerminal {
			t.Errorf("%+v: on a terminal %t", c, got)
		}
		if got := color.Enabled(New(terminal)); got != c.onTerminal {
			t.Errorf("%+v: on a console %t", c, got)
		}
		if got := color.Enabled(&bytes.Buffer{}); got != c.elsewhere {
			t.Errorf("%+v: elsewhere %t", c, got)
		}
	}

	var color Color
	if err := color.Set("sometimes"); err == nil || color.String() != "auto" {
		t.Errorf("sometimes: %v, %v", color, err)
	}
}

func TestLogColor(t *testing.T) {
	var out bytes.Buffer
	logger := New(&out).Logger(slog.LevelWarn, ColorAlways)
	logger.Info("not shown")
	logger.Warn("careful")
	logger.Error("broken")
	want := "\x1b[38;5;130mwarn:\x1b[0m careful\n\x1b[38;5;160merror:\x1b[0m broken\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
