package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// resultPort is the serial port for what the jobs print, away from the kernel's messages on the first.
const resultPort = "/dev/ttyS1"

// What is printed there between the jobs' lines: before the command of each, before the reason why it failed, and at the end,
// so that a machine that dies is told from one that has done its work.
const (
	jobMark     = "\n== run "
	failureMark = "\n== failed: "
	finished    = "\n== all jobs have run\n"
)

// beInit runs the jobs as the first process of a machine, and switches it off. Errors go to the console.
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
	if err := mountAll(); err != nil {
		return err
	}
	// The tests reserve more than a machine has, as programs do on larger ones.
	if err := os.WriteFile("/proc/sys/vm/overcommit_memory", []byte("1"), 0); err != nil {
		return err
	}
	port, err := os.OpenFile(resultPort, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	raw, err := os.ReadFile(jobsFile)
	if err != nil {
		return err
	}
	var w work
	if err := json.Unmarshal(raw, &w); err != nil {
		return fmt.Errorf("read %s: %w", jobsFile, err)
	}
	w.run(port)
	return unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1) // tcdrain(3)
}

// A work is what jobsFile holds.
type work struct {
	Jobs        [][]string // commands
	Environment []string
}

func (w work) run(port io.Writer) {
	for _, job := range w.Jobs {
		fmt.Fprintf(port, jobMark+"%s\n", strings.Join(job, " "))
		command := exec.Command(job[0], job[1:]...)
		command.Stdout, command.Stderr = port, port
		command.Env = append(os.Environ(), w.Environment...)
		if err := command.Run(); err != nil {
			fmt.Fprintf(port, failureMark+"%v\n", err)
		}
	}
	fmt.Fprint(port, finished)
}

func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"},
		{"tracefs", "/sys/kernel/tracing"}, {"bpf", "/sys/fs/bpf"}, {"tmpfs", "/dev/shm"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}
