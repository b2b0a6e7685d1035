package tree

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
)

// children starts a command that starts two processes, and returns their PIDs and its own.
func children(t *testing.T, command *exec.Cmd) (first, second, parent int) {
	t.Helper()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("pkill", "-KILL", "-P", strconv.Itoa(command.Process.Pid)).Run()
		_ = command.Process.Kill()
		_ = command.Wait()
	})

	parent = command.Process.Pid
	file := fmt.Sprintf("/proc/%d/task/%d/children", parent, parent)
	for range 1000 {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := fmt.Sscan(string(raw), &first, &second); n == 2 {
			return first, second, parent
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%v has not started two processes", command.Args)
	return 0, 0, 0
}

func jobOf(t *testing.T, pid int) Job {
	t.Helper()
	p, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return JobOf(p)
}

func TestJob(t *testing.T) {
	const two = "sleep 1000 & sleep 1000 & wait"
	typed := exec.Command("bash")
	typed.Stdin = strings.NewReader(two + "\n")
	for name, c := range map[string]struct {
		command *exec.Cmd
		related bool
	}{
		"script has a job":              {exec.Command("sh", "-c", two), true},
		"launcher of a script, too":     {exec.Command("bash", "--norc", "-ec", two), true},
		"shell in which somebody types": {typed, false},
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

	t.Run("run is found by its identifier", func(t *testing.T) {
		for _, c := range []struct {
			first, second string
			related       bool
		}{
			{"TORCHELASTIC_RUN_ID=7f", "TORCHELASTIC_RUN_ID=7f", true},
			{"TORCHELASTIC_RUN_ID=7f", "TORCHELASTIC_RUN_ID=80", false},
			{"TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RUN_ID=none", false},
			{"SLURM_JOB_ID=3 SLURM_STEP_ID=0", "SLURM_JOB_ID=3 SLURM_STEP_ID=0", true},
			{"SLURM_JOB_ID=3 SLURM_STEP_ID=0", "SLURM_JOB_ID=3 SLURM_STEP_ID=1", false},
			{"SLURM_JOB_ID=3", "SLURM_JOB_ID=3", false},
			{"MASTER_ADDR=::1 MASTER_PORT=29500", "MASTER_ADDR=::1 MASTER_PORT=29500", true},
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
	for range 1000 {
		p, err := process.Open(pid)
		if err != nil {
			t.Fatal(err)
		}
		running := p.Name
		p.Close()
		if running == name {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("PID %d does not run %s", pid, name)
}
