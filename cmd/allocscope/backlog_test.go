package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
)

func TestATraceWhoseLogNobodyReadsGoesOnAndEnds(t *testing.T) {
	t.Parallel()
	target, folder := startSteps(t), newFolder(t)
	cmd := allocscope(t, traceArguments(target.PID(), folder, "--duration", "1s")...)
	cmd.Stderr = fullPipe(t)
	c := begin(t, cmd)
	c.mustEnd(0)
	if s := readSummary(t, folder); s.Ended != summary.EndedDuration {
		t.Errorf("ended by %s", s.Ended)
	}
	mustSay(t, "stdout", c.stdout.String(), "as long as asked for")
}

// A slowWriter takes a line whenever it is allowed to.
type slowWriter struct {
	allowed chan struct{}
	mu      sync.Mutex
	text    bytes.Buffer
}

func (w *slowWriter) Write(data []byte) (int, error) {
	<-w.allowed
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(data)
}

func TestWhatIsLoggedWaitsForItsReaderUpToABound(t *testing.T) {
	slow := &slowWriter{allowed: make(chan struct{})}
	b := newBacklog(slow)
	b.flush() // nothing waits
	line := []byte("line\n")
	for range mostKept + 5 {
		if n, err := b.Write(line); n != len(line) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	copy(line, "used ") // it is the caller's
	close(slow.allowed)
	for range 3 { // whatever the machine is busy with
		b.flush()
	}
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if want := strings.Repeat("line\n", mostKept) + "5 more lines were logged\n"; slow.text.String() != want {
		t.Errorf("%d bytes that end with %q", slow.text.Len(), lastLine(slow.text.String()))
	}
}

var colour = regexp.MustCompile(`\x1b\[[0-9;]*[34][0-8][;m]`)

func TestTheScreenHasNoColoursWhereNobodyWantsThem(t *testing.T) {
	for name, c := range map[string]struct {
		before  string
		colours bool
	}{"as it is": {"", true}, "NO_COLOR": {"NO_COLOR=1 ", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, folder := startSteps(t), newFolder(t)
			m := startTmux(t, 80, 24, "read begin\n"+c.before+screenCommand(target.PID(), folder, "--duration", "1h"))
			raw := filepath.Join(m.folder, "raw")
			m.do("pipe-pane", "cat > "+raw)
			m.press("Enter")
			m.until("q quit and write", "events/s")
			m.press("q")
			m.mustBeGivenBack("interrupted")
			m.wait("all has been recorded", func() bool {
				text, _ := os.ReadFile(raw) // there is none before anything was written
				return strings.Contains(string(text), "echoctl")
			})
			text, err := os.ReadFile(raw)
			if found := colour.FindString(string(text)); err != nil || (found != "") != c.colours {
				t.Errorf("colours: %q, want some: %v, %v", found, c.colours, err)
			}
		})
	}
}
