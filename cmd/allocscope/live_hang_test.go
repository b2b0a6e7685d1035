package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
)

// hung is a trace whose screen is on a terminal that takes nothing more, until it is told to go on.
func hung(t *testing.T) (c *command, folder string, terminal *terminal, goOn func()) {
	t.Helper()
	target := startSteps(t)
	folder, terminal = newFolder(t), openTerminal(t, 80)
	cmd := allocscope(t, traceArguments(target.PID(), folder)...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal.end, terminal.end, terminal.end
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c = begin(t, cmd)
	c.await("the screen is up", func() bool {
		terminal.mu.Lock()
		defer terminal.mu.Unlock()
		return strings.Contains(terminal.raw.String(), "\x1b[?1049h") && strings.Contains(terminal.raw.String(), "events/s")
	})
	const off, on = 0, 1 // TCOOFF, TCOON of tcflow(3)
	flow := func(how int) {
		if err := unix.IoctlSetInt(int(terminal.end.Fd()), unix.TCXONC, how); err != nil {
			t.Error(err)
		}
	}
	flow(off)
	return c, folder, terminal, func() { flow(on) }
}

// mustBeCooked wants a terminal that is not raw.
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

// A connection hangs, and whoever writes to it waits.
func TestATerminalThatHangsLosesNoFiles(t *testing.T) {
	t.Parallel()
	c, dir, terminal, goOn := hung(t)
	c.signal(syscall.SIGTERM)
	c.awaitFile(dir, folder.SummaryFile)
	goOn()
	c.mustEnd(0)
	terminal.mustBeCooked(t)
}

// The second one comes while the screen is being left, and ends allocscope after that.
func TestASecondSignalWaitsForTheTerminal(t *testing.T) {
	t.Parallel()
	c, _, terminal, goOn := hung(t)
	for ; !c.hasEnded(); time.Sleep(time.Millisecond) {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	if status := c.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %s", c.ProcessState)
	}
	terminal.mustBeCooked(t)
	goOn()
}
