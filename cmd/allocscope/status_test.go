package main

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

func TestWithoutATerminalALineIsPrintedEveryTenSeconds(t *testing.T) {
	var out bytes.Buffer
	s := newStatus(screenOf(&out), 5*time.Minute)
	cost := 0.019
	overhead := &summary.Overhead{Share: &cost, Limit: 0.03, Mode: summary.HeapBursts, Bursts: 3}
	snapshot := &growth.Snapshot{LiveObjects: 12345, Holdings: []growth.Holding{{InuseBytes: 3 << 20}}}
	for second := range 25 {
		sample := growth.Sample{Elapsed: time.Duration(second) * time.Second, RSS: 1 << 30}
		s.show(sample, snapshot, tracer.Events{Allocations: uint64(second) * 1500, Frees: uint64(second) * 500}, []tracer.Loss{{Count: 2}, {Count: 5}}, overhead)
	}
	s.clear()
	const rest = " of 5m  RSS 1.00 GiB  traced 3.00 MiB in 12.3 k samples  2000 events/s  drops 7  overhead 1.9 %, heap in windows\n"
	if want := "10s" + rest + "20s" + rest; out.String() != want {
		t.Errorf("prints %q, want %q", out.String(), want)
	}
}

func TestBeforeTheFirstSnapshotTheStatusSpeaksOfNone(t *testing.T) {
	var out bytes.Buffer
	s := newStatus(screenOf(&out), 0)
	s.show(growth.Sample{Elapsed: 10 * time.Second, RSS: 5 << 20}, nil, tracer.Events{}, nil, nil)
	if want := "10s  RSS 5.00 MiB  0 events/s  drops 0\n"; out.String() != want {
		t.Errorf("prints %q, want %q", out.String(), want)
	}
}

// A terminal is a pseudo-terminal and what its screen shows.
type terminal struct {
	end     *os.File // for the program
	columns int

	mu      sync.Mutex
	raw     strings.Builder
	rows    [][]rune
	at      int // column
	closed  chan struct{}
	escape  string
	unknown []string // escape sequences that it does not know
}

// openTerminal opens a terminal of that width.
func openTerminal(t *testing.T, columns int) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: uint16(columns)})
	}
	if err != nil {
		t.Fatalf("set up terminal: %v", err)
	}
	end, err := os.OpenFile("/dev/pts/"+itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close() })
	terminal := &terminal{end: end, columns: columns, rows: [][]rune{nil}, closed: make(chan struct{})}
	go terminal.read(master)
	return terminal
}

// read shows what arrives until the program's end is closed.
func (s *terminal) read(master *os.File) {
	defer close(s.closed)
	for buffer := make([]byte, 4096); ; {
		n, err := master.Read(buffer)
		s.mu.Lock()
		s.raw.Write(buffer[:n])
		for _, r := range string(buffer[:n]) {
			s.put(r)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// put does what a terminal does: \r, \n, wrapping at its width, and erasing to the end of a line.
func (s *terminal) put(r rune) {
	row := len(s.rows) - 1
	switch {
	case s.escape != "" || r == '\x1b':
		s.escape += string(r)
		if len(s.escape) > 1 && r != '[' {
			if s.escape != "\x1b[K" {
				s.unknown = append(s.unknown, s.escape)
			}
			s.rows[row], s.escape = s.rows[row][:min(s.at, len(s.rows[row]))], ""
		}
	case r == '\r':
		s.at = 0
	case r == '\n':
		s.rows = append(s.rows, nil)
	default:
		if s.at == s.columns {
			s.rows, s.at, row = append(s.rows, nil), 0, row+1
		}
		for len(s.rows[row]) <= s.at {
			s.rows[row] = append(s.rows[row], ' ')
		}
		s.rows[row][s.at] = r
		s.at++
	}
}

// shows is what a user sees.
func (s *terminal) shows() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	for _, row := range s.rows {
		text.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return text.String()
}

func TestOnATerminalTheStatusLineIsRewrittenAndErasedAtTheEnd(t *testing.T) {
	for _, columns := range []int{200, 40} {
		t.Run(itoa(columns)+" columns", func(t *testing.T) {
			target, folder, screen := startSteps(t), newFolder(t), openTerminal(t, columns)
			cmd := allocscope(t, traceArguments(target.PID(), folder, "--no-tui")...)
			cmd.Stdout, cmd.Stderr = screen.end, screen.end
			c := begin(t, cmd)
			screen.end.Close()
			c.await("the status has been rewritten", func() bool { return strings.Contains(screen.shows(), "\n2s  RSS ") })
			if lines := strings.Split(strings.TrimSpace(screen.shows()), "\n"); strings.Count(screen.shows(), "RSS") != 1 || len(lines[len(lines)-1]) >= columns {
				t.Errorf("shows\n%s", screen.shows())
			}
			do(target, "leak 1000 96")
			c.interrupt()
			<-screen.closed
			mustBeClean(t, screen)
		})
	}
}

// mustBeClean wants that nothing is left of the status line, which was there, and that the table was printed.
func mustBeClean(t *testing.T, screen *terminal) {
	t.Helper()
	if n := strings.Count(screen.raw.String(), "\r\x1b[K"); n < 4 || len(screen.unknown) > 0 {
		t.Errorf("rewritten %d times, with %q", n, screen.unknown)
	}
	for _, left := range []string{"events/s", "drops"} {
		if strings.Contains(screen.shows(), left) {
			t.Errorf("the screen still shows %q:\n%s", left, screen.shows())
		}
	}
	mustSay(t, "the screen", strings.ReplaceAll(screen.shows(), "\n", ""), "tracing ", "interrupted", "leak_here (steps)", "go tool pprof -top ")
}
