package console

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func resize(t *testing.T, terminal *os.File, columns uint16) {
	t.Helper()
	size := &unix.Winsize{Row: 24, Col: columns}
	tracertest.NoError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, size))
}

func TestWidth(t *testing.T) {
	_, terminal := tracertest.OpenTerminal(t)
	for columns, want := range map[uint16]int{
		60: 60, 200: 200, 9: words.MinWidth, 0: words.ResultWidth,
	} {
		resize(t, terminal, columns)
		if got := Width(terminal); got != want {
			t.Errorf("%d columns: %d, want %d", columns, got, want)
		}
		if got := Width(New(terminal)); got != want {
			t.Errorf("a console of %d columns: %d, want %d", columns, got, want)
		}
	}

	var file bytes.Buffer
	if got := Width(&file); got != words.ResultWidth || Wrapped(&file) != &file {
		t.Errorf("a file has %d columns", got)
	}
	if _, isWrapped := Wrapped(terminal).(*wrapper); !isWrapped {
		t.Error("lines on a terminal are not wrapped")
	}
}

func TestWrapped(t *testing.T) {
	const table = "warn  perf_event_paranoid    it is 4, so that nobody but root may open events of the kernel\n"
	var out bytes.Buffer
	w := &wrapper{out: &out, width: 60}
	for _, part := range []string{table[:30], table[30:] + "\n  short\n", "error: " + table} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}

	want := []string{
		"warn  perf_event_paranoid    it is 4, so that nobody but",
		"                             root may open events of the",
		"                             kernel", "", "  short",
	}
	lines := strings.Split(out.String(), "\n")
	if !slices.Equal(lines[:len(want)], want) {
		t.Errorf("%q, want %q", lines[:len(want)], want)
	}
	for _, line := range lines {
		if ansi.StringWidth(line) > 60 {
			t.Errorf("too long: %q", line)
		}
	}
	if got := strings.Join(strings.Fields(out.String()), " "); got != strings.Join(
		strings.Fields(table+" short error: "+table), " ") {
		t.Errorf("words are lost or broken: %s", got)
	}
}

func TestFitStatus(t *testing.T) {
	const status = "10s of 1m  RSS 119 MiB  traced 43.5 MiB in 174 samples  drops 0"
	for width, want := range map[int]string{
		79: status, 59: "10s of 1m  RSS 119 MiB  traced 43.5 MiB in 174 samples",
		39: "10s of 1m  RSS 119 MiB", 4: "10s ",
	} {
		if got := fitStatus(status, width); got != want {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}
