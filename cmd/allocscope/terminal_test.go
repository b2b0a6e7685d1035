package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestTerminal(t *testing.T) {
	t.Run("status line", testStatusLine)
	t.Run("screen", testScreen)
	t.Run("signal", testSignalOnScreen)
	t.Run("terminal that hangs", testHangingTerminal)
}

// terminal is a pseudo-terminal and what was written to it.
type terminal struct {
	end *os.File // for the program

	mu     sync.Mutex
	raw    strings.Builder
	closed chan struct{}
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
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{
			Row: 50,
			Col: uint16(columns),
		})
	}
	if err != nil {
		t.Fatalf("set up terminal: %v", err)
	}

	end, err := os.OpenFile("/dev/pts/"+itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { end.Close() })
	terminal := &terminal{end: end, closed: make(chan struct{})}
	go terminal.read(master)
	return terminal
}

// read keeps what is written until the program's end is closed.
func (s *terminal) read(master *os.File) {
	defer close(s.closed)
	for buffer := make([]byte, 4096); ; {
		n, err := master.Read(buffer)
		s.mu.Lock()
		s.raw.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

const eraseLine = "\r\x1b[K"

func testStatusLine(t *testing.T) {
	const columns = 40
	target, dir, screen := startSteps(t), newFolder(t), openTerminal(t, columns)
	cmd := allocscope(t, traceArguments(target.PID(), dir, "--no-tui")...)
	cmd.Stdout, cmd.Stderr = screen.end, screen.end
	c := begin(t, cmd)
	screen.end.Close()

	c.await("the status was rewritten", func() bool {
		return strings.Contains(screen.text(), eraseLine+"2s  RSS ")
	})

	c.interrupt()
	<-screen.closed

	lines := strings.Split(screen.text(), eraseLine)
	for _, line := range lines[1 : len(lines)-1] {
		if strings.Contains(line, "RSS") && len(line) >= columns {
			t.Errorf("the status wraps: %q", line)
		}
	}

	result := lines[len(lines)-1]
	mustSay(t, "the terminal", result, words.End(summary.EndedInterrupt), "go tool pprof -top ")
	if strings.Contains(result, "events/s") {
		t.Errorf("the status line is left:\n%s", result)
	}
}

// tmux is a terminal with a person's eyes and fingers.
type tmux struct {
	t      *testing.T
	folder string // of its socket and of what the test leaves for the shell
}

// startTmux opens a terminal of a size in which a shell runs a script.
func startTmux(t *testing.T, width, height int, script string) *tmux {
	t.Helper()
	tracertest.NeedsRoot(t)
	dir, err := os.MkdirTemp("", "tmux-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}

	m := &tmux{t: t, folder: dir}
	t.Cleanup(func() {
		_ = m.command("kill-server").Run()
		os.RemoveAll(dir)
	})

	file := filepath.Join(dir, "script")
	if err := os.WriteFile(file, []byte(script+"\necho the shell goes on; stty -a; read end\n"),
		0o600); err != nil {
		t.Fatal(err)
	}

	m.do("new-session", "-d", "-x", itoa(width), "-y", itoa(height), "/bin/sh "+file)
	return m
}

func (m *tmux) command(arguments ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-L", "test", "-f", "/dev/null"}, arguments...)...)
	cmd.Env = append(os.Environ(), "TMUX_TMPDIR="+m.folder, "TERM=xterm-256color", "LC_ALL=C.UTF-8",
		"NO_COLOR=")
	return cmd
}

func (m *tmux) do(arguments ...string) string {
	m.t.Helper()
	cmd := m.command(arguments...)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatalf("%s: %v: %s", cmd, err, errors.String())
	}
	return string(out)
}

// shows is what can be seen; with everything that has scrolled away, all.
func (m *tmux) shows(all bool) string {
	m.t.Helper()
	if all {
		return m.do("capture-pane", "-p", "-J", "-S", "-")
	}
	return m.do("capture-pane", "-p")
}

// press presses keys by their names.
func (m *tmux) press(keys ...string) {
	m.t.Helper()
	m.do(append([]string{"send-keys"}, keys...)...)
}

// until waits until all texts can be seen.
func (m *tmux) until(texts ...string) {
	m.t.Helper()
	m.wait(fmt.Sprintf("it shows %q", texts), func() bool {
		seen := m.shows(false)
		for _, text := range texts {
			if !strings.Contains(seen, text) {
				return false
			}
		}
		return true
	})
}

func (m *tmux) wait(what string, isTrue func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(guard); !isTrue(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("waited in vain until %s; the terminal shows\n%s", what, m.shows(true))
		}
	}
}

// isAlternate reports whether the terminal is on its other screen.
func (m *tmux) isAlternate() bool {
	m.t.Helper()
	return strings.TrimSpace(m.do("display-message", "-p", "#{alternate_on}")) == "1"
}

// mustBeGivenBack waits for the shell, and checks for the terminal as a shell needs it.
func (m *tmux) mustBeGivenBack(words ...string) {
	m.t.Helper()
	m.wait("the shell goes on", func() bool {
		return strings.Contains(m.shows(true), "the shell goes on") &&
			strings.Contains(m.shows(true), "echoctl")
	})

	if m.isAlternate() {
		m.t.Error("the terminal is still on its other screen")
	}

	if flag := strings.TrimSpace(m.do("display-message", "-p", "#{cursor_flag}")); flag != "1" {
		m.t.Errorf("the cursor is hidden: %q", flag)
	}

	all := m.shows(true)
	for _, flag := range []string{"icanon", "echo", "isig", "opost"} {
		if !slices.Contains(strings.Fields(all), flag) {
			m.t.Errorf("the terminal has not %s:\n%s", flag, all)
		}
	}

	mustSay(m.t, "the terminal", all, words...)
}

// screenCommand is a trace for a shell.
func screenCommand(pid int, dir string, flags ...string) string {
	arguments := append([]string{
		binary, "trace", "--pid", itoa(pid), "--interval", "1",
		"--overhead", "off", "--snapshot-every", "1s", "--output", dir,
	}, flags...)
	return "env -u SUDO_USER -u SUDO_UID -u SUDO_GID " + strings.Join(arguments, " ")
}

// widest is the width of the widest line that can be seen.
func (m *tmux) widest() int {
	widest := 0
	for line := range strings.Lines(m.shows(false)) {
		widest = max(widest, len([]rune(strings.TrimRight(line, "\n "))))
	}
	return widest
}

func testScreen(t *testing.T) {
	t.Parallel()
	target, dir := startSteps(t), newFolder(t)
	m := startTmux(t, 80, 24, screenCommand(target.PID(), dir, "--duration", "1h")+
		"; echo status $?")
	m.until("q quit and write", "RSS ", "PID "+itoa(target.PID()))
	do(target, "leak 2000 4096")
	m.until("leak_here", "events/s", "allocscope ", "1h", "█")
	if widest := m.widest(); widest > 80 || widest < 70 || !m.isAlternate() {
		t.Errorf("%d columns are used, on the other screen: %v\n%s", widest, m.isAlternate(),
			m.shows(false))
	}

	m.do("resize-window", "-x", "200", "-y", "50")
	m.until("This trace", "leak_here (steps)")
	m.wait("200 columns are used", func() bool { return m.widest() > 190 })
	m.do("resize-window", "-x", "80", "-y", "24")

	m.wait("80 columns are used", func() bool {
		return m.widest() <= 80 &&
			!strings.Contains(m.shows(false), "This trace")
	})

	m.press("s")
	m.until("Stacks by bytes")
	m.press("m")
	m.until("Enter adds it")
	m.press("-l", "half time")
	m.until("half time█")
	m.press("Enter")
	m.until("1 mark", "half time")
	m.press("q")
	m.mustBeGivenBack("status 0", words.End(summary.EndedInterrupt), "Files are in "+dir,
		"go tool pprof -top ")
	sum := readSummary(t, dir)
	if len(sum.Marks) != 1 || sum.Marks[0].Text != "half time" ||
		sum.Ended != summary.EndedInterrupt {
		t.Errorf("marks %+v, ended by %s", sum.Marks, sum.Ended)
	}

	readProfile(t, dir, folder.GrowthFile)
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.PlateauFile), "leak_here"),
		objects(2000, 4096))
}

// onScreen is a trace whose screen is up, and its PID.
func onScreen(t *testing.T) (m *tmux, pid int) {
	t.Helper()
	target, dir := startSteps(t), newFolder(t)
	file := filepath.Join(t.TempDir(), "pid")
	m = startTmux(t, 80, 24, fmt.Sprintf("sh -c 'echo $$ > %s; exec %s'; echo status $?", file,
		screenCommand(target.PID(), dir, "--duration", "1h")))
	m.until("q quit and write", "events/s")
	do(target, "leak 2000 4096")
	text, err := os.ReadFile(file)
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}

	if err != nil {
		t.Fatal(err)
	}

	return m, pid
}

func testSignalOnScreen(t *testing.T) {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			m, pid := onScreen(t)
			if err := unix.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
			m.mustBeGivenBack("status 0", words.End(summary.EndedInterrupt), "leak_here (steps)",
				"Files are in ")
		})
	}
}

// hung is a trace whose screen is on a terminal that takes nothing more, until it goes on.
func hung(t *testing.T) (c *command, dir string, terminal *terminal, goOn func()) {
	t.Helper()
	target := startSteps(t)
	dir, terminal = newFolder(t), openTerminal(t, 80)
	cmd := allocscope(t, traceArguments(target.PID(), dir)...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal.end, terminal.end, terminal.end
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c = begin(t, cmd)

	c.await("the screen is up", func() bool {
		return strings.Contains(terminal.text(), "\x1b[?1049h") && strings.Contains(terminal.text(),
			"events/s")
	})

	const off, on = 0, 1 // TCOOFF, TCOON of tcflow(3)
	flow := func(how int) {
		if err := unix.IoctlSetInt(int(terminal.end.Fd()), unix.TCXONC, how); err != nil {
			t.Error(err)
		}
	}

	flow(off)
	return c, dir, terminal, func() { flow(on) }
}

// mustBeCooked checks for a terminal that is not raw.
func (s *terminal) mustBeCooked(t *testing.T) {
	t.Helper()
	now, err := unix.IoctlGetTermios(int(s.end.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint32(unix.ICANON | unix.ECHO | unix.ISIG); now.Lflag&want != want {
		t.Errorf("the terminal is still raw: %#x", now.Lflag)
	}
}

// A connection hangs, and writes to it block.
func testHangingTerminal(t *testing.T) {
	t.Parallel()
	c, dir, terminal, goOn := hung(t)
	c.signal(syscall.SIGTERM)
	c.awaitFile(dir, folder.SummaryFile)
	goOn()
	c.mustEnd(0)
	terminal.mustBeCooked(t)
}
