package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A machine boots a kernel with a root file system.
type machine struct {
	architecture
	image, root  string
	parameters   string // of the kernel
	log, console string // files for the output of the jobs and for the kernel's messages
	limit        time.Duration
}

// boot runs a machine until it switches itself off.
func boot(ctx context.Context, m machine) error {
	ctx, stop := context.WithTimeoutCause(ctx, m.limit, fmt.Errorf("not done after %s", m.limit))
	defer stop()

	command := exec.CommandContext(ctx, m.qemu, append([]string{
		"-accel", "tcg,thread=single", "-smp", "1", "-m", "2G",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:" + m.console, "-chardev", "file,id=log,path=" + m.log,
		"-kernel", m.image, "-initrd", m.root,
		"-append", m.architecture.parameters + " quiet panic=-1 rdinit=/init " + m.parameters,
	}, m.arguments...)...)

	out, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("run qemu: %w", err), errors.New(string(out)))
	}
	return nil
}

// Marks between the output of the jobs. finishedMark distinguishes a machine that has run all jobs
// from one that died.
const (
	jobMark      = "\n== run "     // and the command
	failureMark  = "\n== failed: " // and the error
	finishedMark = "\n== all jobs have run\n"
)

// beInit runs the jobs as the first process of a machine, and switches it off. Errors go to the
// console.
func beInit() {
	if err := runJobs(); err != nil {
		fmt.Println("error:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("error: power off:", err)
	}
}

func runJobs() error {
	raw, err := os.ReadFile(jobsFile)
	if err != nil {
		return err
	}
	var w work
	if err := json.Unmarshal(raw, &w); err != nil {
		return fmt.Errorf("read %s: %w", jobsFile, err)
	}

	if err := mountAll(w.Unmounted); err != nil {
		return err
	}

	// The tests reserve more memory than a machine has.
	if err := os.WriteFile("/proc/sys/vm/overcommit_memory", []byte("1"), 0); err != nil {
		return err
	}

	port, err := os.OpenFile(architectures[runtime.GOARCH].resultPort, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer port.Close()

	w.run(port)
	return unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1) // tcdrain(3)
}

// A work is the content of jobsFile.
type work struct {
	Jobs        [][]string // commands
	Environment []string
	Unmounted   string // kind of file system that is not mounted; empty: all are
}

func (w work) run(port io.Writer) {
	for _, job := range w.Jobs {
		fmt.Fprintf(port, jobMark+"%s\n", strings.Join(job, " "))

		command := exec.Command(job[0], job[1:]...)
		// The port is a terminal, in which lines would be broken: a job writes to a pipe.
		pipe := struct{ io.Writer }{port}
		command.Stdout, command.Stderr = pipe, pipe
		command.Env = append(os.Environ(), w.Environment...)
		if err := command.Run(); err != nil {
			fmt.Fprintf(port, failureMark+"%v\n", err)
		}
	}

	fmt.Fprint(port, finishedMark)
}

// mountAll mounts all kinds of file systems but one.
func mountAll(but string) error {
	for _, m := range []struct{ kind, at string }{
		{"devtmpfs", "/dev"},
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"securityfs", "/sys/kernel/security"},
		{"tracefs", "/sys/kernel/tracing"},
		{"bpf", "/sys/fs/bpf"},
		{"tmpfs", "/dev/shm"},
		{"cgroup2", "/sys/fs/cgroup"},
	} {
		if m.kind == but {
			continue
		}
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}
