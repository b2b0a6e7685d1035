package console

import (
	"bytes"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// openTerminal opens a new pseudo-terminal, and returns its slave.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master := tracertest.Must(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _ = master.Close() })
	tracertest.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))

	fd := tracertest.Must(unix.IoctlRetInt(int(master.Fd()), unix.TIOCGPTPEER))(t)
	slave := os.NewFile(uintptr(fd), "terminal")
	t.Cleanup(func() { _ = slave.Close() })
	return slave
}

func TestColor(t *testing.T) {
	terminal := openTerminal(t)
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
