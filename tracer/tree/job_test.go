package tree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// children starts a command that starts two processes, and returns their PIDs and its own.
func children(t *testing.T, command *exec.Cmd) (first, second, parent int) {
	t.Helper()
	tracertest.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = exec.Command("pkill", "-KILL", "-P", strconv.Itoa(command.Process.Pid)).Run()
		_ = command.Process.Kill()
		_ = command.Wait()
	})

	parent = command.Process.Pid
	file := fmt.Sprintf("/proc/%d/task/%d/children", parent, parent)
	tracertest.Eventually(t, fmt.Sprint(command.Args, " has started two processes"), func() bool {
		raw := tracertest.Must(os.ReadFile(file))(t)
		n, _ := fmt.Sscan(string(raw), &first, &second)
		return n == 2
	})
	return first, second, parent
}

func jobOf(t *testing.T, pid int) Job {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	defer p.Close()
	return JobOf(p)
}

// childOf is a child of a process; 0: it has none yet.
func childOf(parent int, table ProcessTable) int {
	for pid, p := range table {
		if p.parent == parent {
			return pid
		}
	}
	return 0
}

// torchrun starts two ranks, each in a session of its own.
const torchrun = `import subprocess
ranks = [subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(2)]
for rank in ranks: rank.wait()`

// onTerminal makes a command the leader of a session with a terminal of its own, and types a line.
func onTerminal(t *testing.T, command *exec.Cmd, line string) *exec.Cmd {
	t.Helper()
	person := tracertest.Must(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	fd := int(person.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	tracertest.NoError(t, err)
	t.Cleanup(func() { _, _ = person.Close(), terminal.Close() })

	command.Stdin, command.Stdout, command.Stderr = terminal, terminal, terminal
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	tracertest.Must(fmt.Fprintln(person, line))(t)
	return command
}

func TestJob(t *testing.T) {
	const two = "sleep 1000 & sleep 1000 & wait"
	piped := exec.Command("bash")
	piped.Stdin = strings.NewReader(two + "\n")
	launcher := filepath.Join(t.TempDir(), "torchrun")
	script := filepath.Join(t.TempDir(), "train.sh")
	if err := errors.Join(os.WriteFile(launcher, []byte(torchrun), 0o600),
		os.WriteFile(script, []byte(two), 0o600)); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		command *exec.Cmd
		related bool
	}{
		"command has a job":       {exec.Command("sh", "-c", two), true},
		"command under options":   {exec.Command("bash", "--norc", "-o", "pipefail", "-ec", two), true},
		"script has a job":        {exec.Command("bash", script), true},
		"launcher of two ranks":   {exec.Command("python3", launcher), true},
		"shell that reads a pipe": {piped, false},
		"interactive shell": {
			onTerminal(t, exec.Command("bash", "--norc", "-i"), two), false,
		},
		"interactive shell of an editor": {
			onTerminal(t, exec.Command("bash", "--init-file", "/dev/null", "-i"), two), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			traced, sibling, parent := children(t, c.command)
			job, table := jobOf(t, traced), readTable(t)
			if !job.Has(traced, table) || job.Has(sibling, table) != c.related ||
				job.Has(parent, table) != c.related || job.Has(os.Getpid(), table) || job.Has(1, table) {
				t.Errorf("%+v: the sibling %v, the parent %v",
					job, job.Has(sibling, table), job.Has(parent, table))
			}
		})
	}

	t.Run("a script of scripts starts several jobs", func(t *testing.T) {
		job := "sh -c '" + two + "' & sleep 1000 & wait"
		inner, other, _ := children(t, exec.Command("bash", "-c", job))
		awaitProgram(t, inner, "sh")
		var table ProcessTable
		tracertest.Eventually(t, "the script has started its processes", func() bool {
			table = readTable(t)
			return childOf(inner, table) != 0
		})
		traced := jobOf(t, childOf(inner, table))
		if !traced.Has(inner, table) || traced.Has(other, table) {
			t.Errorf("%+v: the script %v, the other job %v", traced, traced.Has(inner, table),
				traced.Has(other, table))
		}
		if r := traced.Relation(other, table); r != growth.RelationMachine {
			t.Errorf("the other job is %q", r)
		}
		if r := jobOf(t, inner).Relation(traced.named, table); r != growth.RelationStarted {
			t.Errorf("what the script has started is %q", r)
		}
	})

	t.Run("reused PID of the launcher", func(t *testing.T) {
		job := Job{launcher: 70, start: 5}
		table := ProcessTable{70: {start: 5, parent: 1}, 71: {parent: 70}}
		if !job.Has(71, table) {
			t.Error("the child of the launcher is not of the job")
		}
		if table[70] = (processMemory{start: 6, parent: 1}); job.Has(71, table) {
			t.Error("the child of another process is of the job")
		}
	})

	t.Run("run is found by its identifier", func(t *testing.T) {
		const step, address = "SLURM_JOB_ID=3 ", "MASTER_ADDR=::1 MASTER_PORT=29500 "
		for _, c := range []struct {
			first, second string
			related       bool
		}{
			{"RANK=0 TORCHELASTIC_RUN_ID=7f", "RANK=1 TORCHELASTIC_RUN_ID=7f", true},
			{"RANK=0 TORCHELASTIC_RUN_ID=7f", "RANK=1 TORCHELASTIC_RUN_ID=80", false},
			{"RANK=0 TORCHELASTIC_RUN_ID=none", "RANK=1 TORCHELASTIC_RUN_ID=none", false},
			{step + "SLURM_STEP_ID=0 SLURM_PROCID=0", step + "SLURM_STEP_ID=0 SLURM_PROCID=1", true},
			{step + "SLURM_STEP_ID=0 SLURM_PROCID=0", step + "SLURM_STEP_ID=1 SLURM_PROCID=1", false},
			{step + "SLURM_STEP_ID=0 SLURM_PROCID=0", step + "SLURM_STEP_ID=0 SLURM_PROCID=0", false},
			{step + "SLURM_PROCID=0", step + "SLURM_PROCID=1", false},
			{address + "RANK=0", address + "RANK=1", true},
			{address, address, false},
			{address + "RANK=0 WORLD_SIZE=1", address + "RANK=0 WORLD_SIZE=1", false},
			{"RANK=0", "RANK=1", false},
			{"", "", false},
		} {
			command := exec.Command("bash")
			command.Stdin = strings.NewReader(
				c.first + " sleep 1000 & " + c.second + " sleep 1000 & wait\n")
			traced, other, _ := children(t, command)
			awaitProgram(t, traced, "sleep")
			awaitProgram(t, other, "sleep")
			if got := jobOf(t, traced).Has(other, readTable(t)); got != c.related {
				t.Errorf("%q and %q: related %v", c.first, c.second, got)
			}
		}
	})
}

// awaitProgram waits until a process executes a program.
func awaitProgram(t *testing.T, pid int, name string) {
	t.Helper()
	tracertest.Eventually(t, fmt.Sprintf("PID %d runs %s", pid, name), func() bool {
		p := tracertest.Must(process.Open(pid))(t)
		defer p.Close()
		return p.Name == name
	})
}
