//go:build machine

package tracer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/oom"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelOOMKill fills a cgroup beyond its limit. The kernel's report has that limit, and the
// programs.
func TestKernelOOMKill(t *testing.T) {
	const limit = 4 * heldMiB << 20 // the program that fills it becomes the largest
	for name, isGroup := range map[string]bool{"one process": false, "all of a cgroup": true} {
		if isGroup && !tracertest.NewCgroup(t).IsV2 {
			continue // version 1 has no memory.oom.group
		}
		t.Run(name, func(t *testing.T) {
			log := tracertest.Must(oom.OpenAtEnd())(t)
			defer log.Close()
			g := tracertest.NewCgroup(t)
			g.SetLimit(t, limit)
			if isGroup {
				must(t, os.WriteFile(filepath.Join(g.Folder, "memory.oom.group"), []byte("1"), 0o644))
			}
			held := hold(t, g, "anonymous", ramFolder)
			killed := startFilling(t, g, 2*limit)
			_ = killed.Wait()

			want := []int{killed.Process.Pid}
			if isGroup {
				want = append(want, held.PID())
			}
			kills := make(map[int]growth.OOMKill)
			for end := time.Now().Add(time.Minute); len(kills) < len(want) && time.Now().Before(end); {
				for _, k := range tracertest.Must(log.Kills())(t) {
					if k.Own == "/"+filepath.Base(g.Folder) { // others may be killed meanwhile
						kills[k.PID] = k
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
			for _, pid := range want {
				k, ok := kills[pid]
				isLimit := !k.OfMachine && k.Cgroup == k.Own && k.Limit == limit &&
					max(k.Used, limit)-min(k.Used, limit) < 1<<20
				if !ok || k.Command != "container" || !isLimit || k.Count != 2 || len(k.Largest) != 2 {
					t.Errorf("PID %d: %+v, want a kill at the limit %d", pid, k, limit)
				}
			}
		})
	}
}

// startFilling starts a program that takes so many bytes of memory in a cgroup.
func startFilling(t *testing.T, g tracertest.Cgroup, bytes int) *exec.Cmd {
	t.Helper()
	command := exec.Command(tracertest.Build(t, "container.c"), g.Folder, "anonymous",
		strconv.Itoa(bytes>>20), ramFolder)
	must(t, command.Start())
	t.Cleanup(func() { command.Process.Kill() })
	return command
}
