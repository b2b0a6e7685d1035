package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// newDisplay is the live screen where there is a terminal for it, and lines elsewhere.
func newDisplay(command *cobra.Command, r *recorder) display {
	lines := newStatus(screenOf(command.ErrOrStderr()), time.Duration(r.flags.duration))
	out, ok := command.OutOrStdout().(*os.File)
	if !ok || lines.terminal == nil || !wantsScreen(r.flags, out) {
		return lines
	}
	keys, err := openKeys(out)
	if err != nil {
		slog.Debug("no screen: " + err.Error())
		return lines
	}
	screen, err := newLiveDisplay(command.Context(), r, lines, keys, out)
	if err != nil {
		slog.Debug("no screen: " + err.Error())
		return lines
	}
	return screen
}

// wantsScreen tells whether the user can see a screen, and has not asked for something else.
func wantsScreen(flags traceFlags, out *os.File) bool {
	switch {
	case flags.noTUI || flags.json:
		return false
	case os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb":
		return false
	case flags.marks == "-" && term.IsTerminal(int(os.Stdin.Fd())): // what is typed is the program's, not keys
		return false
	}
	return term.IsTerminal(int(out.Fd()))
}

// openKeys opens the controlling terminal. The error is ENOTTY where that is not the one which is drawn on, or allocscope runs in its
// background: who reads a terminal there, or changes it, is stopped.
func openKeys(out *os.File) (*os.File, error) {
	group, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCGPGRP) // fails on other terminals
	if err == nil && group != unix.Getpgrp() {
		err = unix.ENOTTY
	}
	if err != nil {
		return nil, &os.PathError{Op: "read keys", Path: out.Name(), Err: err}
	}
	return os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
}
