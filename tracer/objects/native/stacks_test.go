package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// frame is a line that testdata/threads.c prints about a thread.
type frame struct{ local, dead, base uint64 }

func parseFrames(t testing.TB, lines []string) map[string]frame {
	t.Helper()
	frames := make(map[string]frame)
	for _, line := range lines {
		var name string
		var f frame
		tracertest.Must(fmt.Sscan(line, &name, &f.local, &f.dead, &f.base))(t)
		frames[name] = f
	}
	return frames
}

// awaitSleep waits until all threads sleep that do not run for ever.
func awaitSleep(t testing.TB, pid int) {
	t.Helper()
	files := tracertest.Must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)))(t)
	for _, file := range files {
		for {
			stat := tracertest.Must(os.ReadFile(file))(t)
			if strings.Contains(string(stat), "(run") || strings.Contains(string(stat), ") S ") {
				break
			}
		}
	}
}

// mustHaveStacks compares the stacks of a process with the output of its threads.
func mustHaveStacks(t testing.TB, pid int, frames map[string]frame) {
	t.Helper()
	awaitSleep(t, pid)
	p, maps := openProcess(t, pid)
	stacks := tracertest.Must(Stacks(p, maps))(t)

	for i, s := range stacks {
		if f := frames["tls"]; s.Start <= f.local && f.local < s.End {
			if delete(frames, "tls"); s.TID != pid || !s.Known {
				t.Errorf("the thread-local variables of the first thread are in %+v", s)
			}
			continue
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, s.TID))
		if err != nil || string(comm) != s.Name+"\n" {
			t.Errorf("thread %d is %s, want %s, %v", s.TID, s.Name, comm, err)
		}
		f, ok := frames[s.Name]
		if !ok {
			t.Errorf("%+v is of no thread", s)
		}
		delete(frames, s.Name)

		// Above the frames of the first thread are the arguments and the environment.
		isBase := s.End == f.base || s.Name == "first" && s.End > f.base && s.End-f.base < 1<<20
		isRunning := strings.HasPrefix(s.Name, "run")
		if f.local < s.Start || f.local >= s.End || !isBase || !s.Known && !isRunning ||
			s.Known && f.dead >= s.Start {
			t.Errorf("%+v, want %+v", s, f)
		}
		if i > 0 && stacks[i-1].End > s.Start {
			t.Errorf("%+v overlaps %+v", s, stacks[i-1])
		}
	}
	delete(frames, "own0") // it may be left out
	if len(frames) > 0 {
		t.Errorf("%+v are missing", frames)
	}
}

func TestStacks(t *testing.T) {
	path := tracertest.Build(t, "threads.c", "-pthread")

	t.Run("threads that wait and that run", func(t *testing.T) {
		target := tracertest.Start(t, path, "20", "3")
		mustHaveStacks(t, target.PID(), parseFrames(t, target.Await("ready")))
	})

	// There, threads see other IDs of their own.
	t.Run("in another namespace", func(t *testing.T) {
		command := exec.Command("unshare", "--pid", "--fork", "--kill-child", path, "5", "2")
		target := tracertest.StartCommand(t, command)
		frames := parseFrames(t, target.Await("ready"))
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", target.PID()))
		tracertest.NoError(t, err)
		pid := tracertest.Must(strconv.Atoi(strings.TrimSpace(string(children))))(t)
		mustHaveStacks(t, pid, frames)
	})
}
