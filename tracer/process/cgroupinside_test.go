package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A reader without mounts of its own reads the process's mounts, as in a container with the host's
// PIDs. The oracle is a cgroup whose limit the test has set.
func TestInsideView(t *testing.T) {
	const limit = 64 << 20
	folder, names := makeCgroup(t)
	if err := os.WriteFile(filepath.Join(folder, names.limit), []byte(fmt.Sprint(limit)), 0o644); err != nil {
		t.Fatal(err)
	}

	start := func(t *testing.T, script string) *Process { return startInside(t, folder, script) }
	// forge makes a file system with the files of a cgroup, and mounts it.
	forge := func(over, command string) string {
		return strings.NewReplacer("OVER", over, "MOUNT", command).Replace(`
			MOUNT
			for file in memory.max memory.high memory.limit_in_bytes; do echo 1000000000000 > OVER/$file; done
			for file in memory.current memory.usage_in_bytes; do echo 1 > OVER/$file; done
			for file in memory.stat cgroup.procs; do echo > OVER/$file; done`)
	}
	mount, sibling := filepath.Dir(folder), folder+"-sibling"
	tracertest.NoError(t, os.Mkdir(sibling, 0o755))
	t.Cleanup(func() { os.Remove(sibling) })
	err := os.WriteFile(filepath.Join(sibling, names.limit), []byte(fmt.Sprint(limit/2)), 0o644)
	tracertest.NoError(t, err)

	for name, c := range map[string]struct {
		script   string
		limit    int64
		isHidden bool
	}{
		"its mounts are as ours":       {"", limit, false},
		"its cgroup alone is mounted":  {"mount --bind " + folder + " /mnt; umount -l " + mount, limit, false},
		"nothing is mounted":           {"umount -l " + mount, Unknown, true},
		"a tmpfs over the hierarchy":   {forge(folder, "mount -t tmpfs none "+mount+"; mkdir "+folder), Unknown, true},
		"a tmpfs over its cgroup":      {forge(folder, "mount -t tmpfs none "+folder), Unknown, true},
		"a link to forged files":       {forge(mount, "umount -l "+mount+"; mount -t tmpfs none "+mount), Unknown, true},
		"another cgroup over its own":  {"mount --bind " + sibling + " " + folder, Unknown, true},
		"a forged copy beside the own": {forge("/mnt", "mount -t tmpfs none /mnt"), limit, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, c.script)
			reader := newSystemMemoryReader(t.TempDir())
			defer reader.Close()
			got := reader.Read(p)
			if got.CgroupLimit != c.limit || got.CgroupHidden != c.isHidden {
				t.Errorf("%+v, want limit %d, hidden %t", got, c.limit, c.isHidden)
			}
			if got.CgroupLimit == limit && (got.CgroupUsed <= 0 || got.CgroupUsed > limit) {
				t.Errorf("%d bytes are used", got.CgroupUsed)
			}
		})
	}

	t.Run("a file that is a link or a pipe is not read", func(t *testing.T) {
		pipes := "umount -l " + mount + "; mount -t tmpfs none " + mount + "; mkdir " + folder +
			"; mkfifo " + filepath.Join(folder, "cgroup.procs") +
			"; ln -s /proc/self/mem " + filepath.Join(folder, names.limit)
		reader := newSystemMemoryReader(t.TempDir())
		defer reader.Close()
		if got := reader.Read(start(t, pipes)); !got.CgroupHidden {
			t.Errorf("%+v", got)
		}
	})

	t.Run("a process that unmounts later keeps what is open", func(t *testing.T) {
		done := filepath.Join(t.TempDir(), "done")
		p := start(t, "(sleep 0.5; umount -l "+mount+"; : > "+done+") &")
		reader := newSystemMemoryReader(t.TempDir())
		defer reader.Close()
		first := reader.Read(p)
		for first.CgroupLimit == limit {
			if _, err := os.Stat(done); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got := reader.Read(p); first.CgroupLimit != limit || got.CgroupLimit != limit {
			t.Errorf("before %+v, after %+v", first, got)
		}
	})
}

// startInside starts a process in a cgroup, in a mount namespace that a script has changed.
func startInside(t *testing.T, folder, script string) *Process {
	t.Helper()
	target := tracertest.StartCommand(t, exec.Command("unshare", "--mount", "sh", "-ec",
		"echo $$ > "+filepath.Join(folder, "cgroup.procs")+"\n"+script+"\necho ready; exec sleep 1000"))
	t.Cleanup(func() {
		procs := filepath.Join(filepath.Dir(folder), "cgroup.procs")
		_ = os.WriteFile(procs, []byte(fmt.Sprint(target.PID())), 0o644)
	})
	target.Await("ready")
	return open(t, target.PID())
}

// Where our mounts show the cgroup, the process's mounts are not read.
func TestInsideViewNotNeeded(t *testing.T) {
	reader := NewSystemMemoryReader()
	defer reader.Close()
	memory := reader.Read(open(t, os.Getpid()))
	if memory.CgroupHidden || reader.inside.of != nil {
		t.Errorf("%+v, inside %+v", memory, reader.inside)
	}
	if memory == (growth.SystemMemory{}) {
		t.Error("nothing was read")
	}
}

// A path that leads to a file system in user space may never answer. It is asked once.
func TestInsideViewStall(t *testing.T) {
	folder, _ := makeCgroup(t)
	p, asked := startInside(t, folder, ""), 0
	reader := newSystemMemoryReader(t.TempDir())
	defer reader.Close()
	reader.inside.openFile = func(*os.File, string, uint64, uint32) (*hostile.File, error) {
		asked++
		return nil, fmt.Errorf("open: %w", hostile.ErrStalled)
	}
	for range 3 * insideRetryPeriod {
		if got := reader.Read(p); !got.CgroupHidden {
			t.Fatalf("%+v", got)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
