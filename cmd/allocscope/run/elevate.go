package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// neededSudo returns the path of sudo where this process cannot trace itself; empty: it can.
func neededSudo() (path string, err error) {
	missing, err := kernel.MissingPrivileges()
	if err != nil {
		return "", err
	}
	for _, p := range missing {
		if p.Without == "" { // nothing can be traced without it
			return findSudo(p.Name)
		}
	}
	return "", nil
}

// findSudo finds sudo where a privilege is missing.
func findSudo(missing string) (path string, err error) {
	if os.Geteuid() == 0 {
		return "", fmt.Errorf("trace a command: root without %s: permission denied (give the "+
			"container its capabilities: docs/guides/privileges.md)", missing)
	}
	path, err = exec.LookPath("sudo")
	if err != nil || !filepath.IsAbs(path) {
		return "", fmt.Errorf("trace a command: without %s: permission denied, and there is no "+
			"sudo in PATH (install sudo, or run it as root)", missing)
	}
	if err := checkSudo(path); err != nil {
		return "", fmt.Errorf("trace a command: without %s: permission denied, and %s is %w",
			missing, path, err)
	}
	return path, nil
}

// checkSudo refuses a program that cannot be sudo.
func checkSudo(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Sys().(*syscall.Stat_t).Uid != 0 || info.Mode()&os.ModeSetuid == 0 {
		return errors.New("not root's with the setuid bit")
	}
	return nil
}

// askTime bounds how long sudo may take to say whether it would ask for a password.
const askTime = 5 * time.Second

// warnOfElevation warns of ways to root that the command has without allocscope: sudo that asks for
// no password, and a program that sudo starts and others can replace.
func warnOfElevation(sudo, self string) {
	ctx, stop := context.WithTimeout(context.Background(), askTime)
	defer stop()
	if exec.CommandContext(ctx, sudo, "-n", "--", "true").Run() == nil {
		slog.Warn("sudo asks for no password now: the command can become root by it, as all your " +
			"programs can (sudo -K ends that, unless sudoers has NOPASSWD)")
	}

	part, why, err := hostile.Replaceable(self)
	if err == nil && part != "" {
		slog.Warn(fmt.Sprintf("sudo starts %s, and others than root can replace it: %s %s (install "+
			"it as root: docs/guides/privileges.md)", growth.Printable(self), growth.Printable(part),
			why))
	}
}
