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
}

func testStatusLine(t *testing.T) {
	t.Parallel()
	target, dir := startSteps(t), newFolder(t)
	m := startTmux(t, 40, 20, screenCommand(target.PID(), dir, "--no-tui"))
	m.until("2s  RSS ")
	if shown := m.shows(false); strings.Count(shown, "s  RSS ") > 1 {
		t.Errorf("the status wraps, or is not rewritten:\n%s", shown)
	}

	m.signal(unix.SIGINT)
	m.mustBeGivenBack(words.End(summary.EndedInterrupt), "go tool pprof -top ")
	if all := m.shows(true); strings.Contains(all, "s  RSS ") {
		t.Errorf("the status line is left:\n%s", all)
	}
}

// tmux is a terminal with a person's eyes and fingers.
type tmux struct {
	t      *testing.T
	folder string // of its socket and of files that the test leaves for the shell
}

// startTmux opens a terminal of a size in which a shell runs a script.
func startTmux(t *testing.T, width, height int, script string) *tmux {
	t.Helper()
	tracertest.NeedsRoot(t)
	dir, err := os.MkdirTemp("", "tmux-") // a socket's path must be short
	must(t, err)

	m := &tmux{t: t, folder: dir}
	t.Cleanup(func() {
		_ = m.command("kill-server").Run()
		os.RemoveAll(dir)
	})

	file := filepath.Join(dir, "script")
	writeFile(t, file, script+"\necho the shell goes on; stty -a; read end\n", 0o600)
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

// shows is the visible text; with everything that has scrolled away, all.
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

// signal sends a signal to the program that the shell runs.
func (m *tmux) signal(s unix.Signal) {
	m.t.Helper()
	shell, err := strconv.Atoi(strings.TrimSpace(m.do("display-message", "-p", "#{pane_pid}")))
	if err == nil {
		err = unix.Kill(childOf(m.t, shell), s)
	}
	if err != nil {
		m.t.Fatal(err)
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
		binary, "trace", "--pid", itoa(pid), "--interval", "1", "--details",
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

	mustHaveLeaked(t, dir, folder.PlateauFile, 2000, 4096)
}

func testSignalOnScreen(t *testing.T) {
	t.Parallel()
	target := startSteps(t)
	m := startTmux(t, 80, 24, screenCommand(target.PID(), newFolder(t))+"; echo status $?")
	m.until("q quit and write", "events/s")
	do(target, "leak 2000 4096")
	m.signal(unix.SIGTERM)
	m.mustBeGivenBack("status 0", words.End(summary.EndedInterrupt), "leak_here (steps)",
		"Files are in ")
}
