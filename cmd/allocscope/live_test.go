package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A tmux is a terminal with a person's eyes and fingers.
type tmux struct {
	t      *testing.T
	folder string // of its socket and of what the test leaves for the shell
}

// startTmux opens a terminal of a size in which a shell runs a script.
func startTmux(t *testing.T, width, height int, script string) *tmux {
	t.Helper()
	tracertest.NeedsRoot(t)
	folder, err := os.MkdirTemp("", "tmux-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	m := &tmux{t: t, folder: folder}
	t.Cleanup(func() {
		_ = m.command("kill-server").Run()
		os.RemoveAll(folder)
	})
	file := filepath.Join(folder, "script")
	if err := os.WriteFile(file, []byte(script+"\necho the shell goes on; stty -a; read end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.do("new-session", "-d", "-x", itoa(width), "-y", itoa(height), "/bin/sh "+file)
	return m
}

func (m *tmux) command(arguments ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-L", "test", "-f", "/dev/null"}, arguments...)...)
	cmd.Env = append(os.Environ(), "TMUX_TMPDIR="+m.folder, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR=")
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
func (m *tmux) press(keys ...string) { m.t.Helper(); m.do(append([]string{"send-keys"}, keys...)...) }

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

// isAlternate tells whether the terminal is on its other screen.
func (m *tmux) isAlternate() bool {
	m.t.Helper()
	return strings.TrimSpace(m.do("display-message", "-p", "#{alternate_on}")) == "1"
}

// mustBeGivenBack waits for the shell, and wants the terminal as a shell needs it.
func (m *tmux) mustBeGivenBack(words ...string) {
	m.t.Helper()
	m.wait("the shell goes on", func() bool {
		return strings.Contains(m.shows(true), "the shell goes on") && strings.Contains(m.shows(true), "echoctl")
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
func screenCommand(pid int, folder string, flags ...string) string {
	arguments := append([]string{binary, "trace", "--pid", itoa(pid), "--interval", "1", "--overhead", "off", "--snapshot-every", "1s", "--output", folder}, flags...)
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

func TestTheScreenShowsALeakFollowsTheTerminalAndGivesItBack(t *testing.T) {
	t.Parallel()
	target, dir := startSteps(t), newFolder(t)
	m := startTmux(t, 80, 24, screenCommand(target.PID(), dir, "--duration", "1h")+"; echo status $?")
	m.until("q quit and write", "RSS ", "PID "+itoa(target.PID()))
	do(target, "leak 2000 4096")
	m.until("leak_here", "heap, allocated and not freed", "events/s", "allocscope ", "1h", "█")
	if widest := m.widest(); widest > 80 || widest < 70 || !m.isAlternate() {
		t.Errorf("%d columns are used, on the other screen: %v\n%s", widest, m.isAlternate(), m.shows(false))
	}
	m.do("resize-window", "-x", "200", "-y", "50")
	m.until("This trace", "leak_here (steps)")
	m.wait("200 columns are used", func() bool { return m.widest() > 190 })
	m.do("resize-window", "-x", "80", "-y", "24")
	m.wait("80 columns are used", func() bool { return m.widest() <= 80 && !strings.Contains(m.shows(false), "This trace") })
	m.press("s")
	m.until("Stacks by bytes")
	m.press("m")
	m.until("Enter sets it")
	m.press("-l", "half time")
	m.until("half time█")
	m.press("Enter")
	m.until("1 mark", "half time")
	m.press("q")
	m.mustBeGivenBack("status 0", "interrupted", "Files are in "+dir, "go tool pprof -top ")
	s := readSummary(t, dir)
	if len(s.Marks) != 1 || s.Marks[0].Text != "half time" || s.Ended != summary.EndedInterrupt {
		t.Errorf("marks %+v, ended by %s", s.Marks, s.Ended)
	}
	readProfile(t, dir, folder.GrowthFile)
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.PlateauFile), "leak_here"), objects(2000, 4096))
}

func TestAtItsEndTheScreenMakesRoomForTheResult(t *testing.T) {
	t.Parallel()
	target, folder := startSteps(t), newFolder(t)
	m := startTmux(t, 80, 24, screenCommand(target.PID(), folder, "--duration", "5s")+"; echo status $?")
	m.until("q quit and write")
	m.mustBeGivenBack("status 0", "as long as asked for", "Files are in "+folder)
}

// onScreen is a trace whose screen is up, and its PID.
func onScreen(t *testing.T) (m *tmux, pid int) {
	t.Helper()
	target, folder := startSteps(t), newFolder(t)
	file := filepath.Join(t.TempDir(), "pid")
	m = startTmux(t, 80, 24, fmt.Sprintf("sh -c 'echo $$ > %s; exec %s'; echo status $?", file, screenCommand(target.PID(), folder, "--duration", "1h")))
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

func TestASignalEndsTheTraceAndGivesTheTerminalBack(t *testing.T) {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			m, pid := onScreen(t)
			if err := unix.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
			m.mustBeGivenBack("status 0", "interrupted", "leak_here (steps)", "Files are in ")
		})
	}
}

// The second one ends allocscope where the trace has not ended by then, as it does without a screen.
func TestTwoSignalsAtOnceGiveTheTerminalBackAsWell(t *testing.T) {
	t.Parallel()
	m, pid := onScreen(t)
	_ = unix.Kill(pid, unix.SIGTERM)
	_ = unix.Kill(pid, unix.SIGTERM) // it may have ended
	m.mustBeGivenBack("status ")

	m, _ = onScreen(t)
	m.press("C-c", "C-c")
	m.mustBeGivenBack("status ")
}

func TestLinesArePlainWhereAScreenIsNotWanted(t *testing.T) {
	for name, c := range map[string]struct{ flag, before, after string }{
		"--no-tui":             {flag: "--no-tui"},
		"--json":               {flag: "--json"},
		"a dumb terminal":      {before: "TERM=dumb "},
		"a pipe":               {after: " | cat"},
		"in the background":    {after: " & wait"},
		"marks that are typed": {flag: "--marks -"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, folder := startSteps(t), newFolder(t)
			command := c.before + screenCommand(target.PID(), folder, "--duration", "4s", c.flag) + c.after
			m := startTmux(t, 100, 24, "set -m; read begin\n"+command+"; echo status $?")
			raw := filepath.Join(m.folder, "raw")
			recorded := func() string {
				text, _ := os.ReadFile(raw) // there is none before anything was written
				return string(text)
			}
			m.do("pipe-pane", "cat > "+raw)
			m.press("Enter")
			m.mustBeGivenBack("status 0")
			m.wait("all has been recorded", func() bool { return strings.Contains(recorded(), "echoctl") })
			mustSay(t, "the terminal", recorded(), "1s of 4s  RSS ", "events/s")
			if strings.Contains(recorded(), "\x1b[?1049h") {
				t.Errorf("there was a screen:\n%q", recorded())
			}
		})
	}
}

func TestWhatIsLoggedMeanwhileIsPrintedAfterwards(t *testing.T) {
	var out bytes.Buffer
	to, before := screenOf(&out), slog.Default()
	slog.SetDefault(newLogger(&out, false))
	defer slog.SetDefault(before)
	var shown []string
	slog.Info("before")
	to.divert(func(line string) { shown = append(shown, line) })
	slog.Warn("one")
	slog.Error("two")
	slog.Info("three")
	if out.String() != "before\n" || !slices.Equal(shown, []string{"warn: one", "error: two", "three"}) {
		t.Errorf("prints %q and shows %q", out.String(), shown)
	}
	to.resume()
	slog.Info("after")
	to.resume()
	if want := "before\nwarn: one\nerror: two\nthree\nafter\n"; out.String() != want {
		t.Errorf("prints %q, want %q", out.String(), want)
	}
}
