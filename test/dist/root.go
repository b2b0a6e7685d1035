package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/test/harness"
)

// A root is a copy of a root file system that one case changes. Its upper folder has the
// differences from the lower one, which stays as it is (overlayfs).
type root struct {
	lower, upper, merged, base string
	env                        []string
	log                        io.Writer
}

// mountRoot makes a copy of lower in a new folder below work.
func mountRoot(s settings, lower string, env []string, log io.Writer) (*root, error) {
	base, err := os.MkdirTemp(s.work, "root-")
	if err != nil {
		return nil, err
	}
	r := &root{
		lower: lower, base: base, log: log,
		upper: filepath.Join(base, "upper"), merged: filepath.Join(base, "merged"),
	}
	r.env = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
		"LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "PYTHONDONTWRITEBYTECODE=1",
		"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_ROOT_USER_ACTION=ignore", "ROOT=" + r.merged,
	}, env...)

	work := filepath.Join(base, "work")
	for _, folder := range []string{r.upper, r.merged, work} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return nil, err
		}
	}

	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, r.upper, work)
	if err := unix.Mount("overlay", r.merged, "overlay", 0, options); err != nil {
		return nil, fmt.Errorf("mount overlay of %s: %w", lower, err)
	}
	return r, r.bind(map[string]string{
		"/proc": "/proc", "/sys": "/sys", "/dev": "/dev",
		s.dist: filesFolder, s.programs: programsFolder,
	})
}

// bind shows folders of this machine in the root.
func (r *root) bind(folders map[string]string) error {
	for from, to := range folders {
		to = filepath.Join(r.merged, to)
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s to %s: %w", from, to, err)
		}
	}
	return nil
}

// unmount ends the copy.
func (r *root) unmount() error {
	if err := unix.Unmount(r.merged, unix.MNT_DETACH); err != nil {
		return err
	}
	return os.RemoveAll(r.base)
}

// command returns shell code to run in the root, or beside it with its path in $ROOT.
func (r *root) command(ctx context.Context, code string, outside bool) *exec.Cmd {
	command := exec.CommandContext(ctx, "/bin/sh", "-euc", code)
	command.Env = r.env
	harness.OwnGroup(command)

	if !outside {
		command.SysProcAttr.Chroot, command.Dir = r.merged, "/root"
	}
	return command
}

// run runs shell code as command, and writes its output into the log.
func (r *root) run(ctx context.Context, code string, outside bool) error {
	fmt.Fprintf(r.log, "\n== %s\n", code)
	command := r.command(ctx, code, outside)
	command.Stdout, command.Stderr = r.log, r.log
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", code, err)
	}
	return nil
}

// output runs shell code in the root, and returns its standard output, which the log gets too.
func (r *root) output(ctx context.Context, code string) (string, error) {
	fmt.Fprintf(r.log, "\n== %s\n", code)
	command := r.command(ctx, code, false)
	command.Stderr = r.log
	out, err := command.Output()
	fmt.Fprintf(r.log, "%s\n", out)
	if err != nil {
		return "", fmt.Errorf("%s: %w", code, err)
	}
	return string(out), nil
}
