package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A limited cgroup is made in the hierarchy that this machine has, and compared with what the kernel's files say.
func TestTheLimitOfARealCgroupIsTheKernels(t *testing.T) {
	const limit = 64 << 20
	folder, files := makeCgroup(t)
	mustWrite(t, filepath.Join(folder, files.limit), fmt.Sprint(limit))
	target := tracertest.StartCommand(t, exec.Command(tracertest.Build(t, "leak.c", "-pthread"), "1", "3000", "4096", "0"))
	mustWrite(t, filepath.Join(folder, "cgroup.procs"), fmt.Sprint(target.PID()))
	t.Cleanup(func() { mustWrite(t, filepath.Join(filepath.Dir(folder), "cgroup.procs"), fmt.Sprint(target.PID())) })
	target.Await("ready")
	target.Say("go")
	target.Await("done")
	stop(t, target.PID())

	// The kernel takes back pages that it charged in advance, and those of what was freed, a while after the process stopped.
	var around growth.Around
	p := open(t, target.PID())
	charged := func() int64 {
		return number(strings.TrimSpace(string(readFile(t, filepath.Join(folder, files.usage)))))
	}
	used := atRest(t, charged, func() { around = FindSurroundings().Around(p) })
	if around.CgroupLimit != limit || around.CgroupUsed > used || around.CgroupUsed < 3000*4096 {
		t.Errorf("%+v; the kernel has charged %d of %d bytes", around, used, limit)
	}
	if room, by := around.Room(); by != "cgroup" || room != limit-around.CgroupUsed {
		t.Errorf("room for %d bytes in the %s", room, by)
	}
	total := kibibytes(parseFields(readFile(t, "/proc/meminfo")), "MemTotal")
	if around.Available <= 0 || around.Available > total || around.SwapFree < 0 {
		t.Errorf("%+v of a machine with %d bytes", around, total)
	}
}

// makeCgroup makes a cgroup that can have a limit of memory.
func makeCgroup(t *testing.T) (string, version) {
	t.Helper()
	var refused []string
	for _, h := range parseMounts(readFile(t, "/proc/self/mountinfo")) {
		folder := filepath.Join(h.at, fmt.Sprintf("allocscope-test-%d", os.Getpid()))
		if err := os.Mkdir(folder, 0o755); err != nil {
			refused = append(refused, err.Error())
			continue
		}
		t.Cleanup(func() { os.Remove(folder) })
		if _, err := os.Stat(filepath.Join(folder, h.limit)); err == nil {
			return folder, h.version
		}
		refused = append(refused, folder+" does not account memory")
	}
	t.Fatalf("no cgroup with a limit can be made (run as root, on the host): %q", refused)
	return "", version{}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkAround(b *testing.B) {
	s, p := FindSurroundings(), openSelf(b)
	for b.Loop() {
		s.Around(p)
	}
}

func BenchmarkSample(b *testing.B) {
	p := openSelf(b)
	for b.Loop() {
		if _, err := p.Sample(); err != nil {
			b.Fatal(err)
		}
	}
}
