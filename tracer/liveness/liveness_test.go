package liveness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// slot is a slot of testdata/liveness.c: a block, and its turn, which is odd while it is alive.
type slot struct{ turn, address, size, _ uint64 }

// program is testdata/liveness.c while it runs.
type program struct {
	*tracertest.Target
	t         testing.TB
	process   *process.Process
	slots     []slot // of live blocks
	freed     []slot // of blocks freed last; turn 1: there is one
	allocator ProcessAllocator
}

// threads of the program. They allocate without a pause: with more of them, the check that they
// race with takes long on a small machine, and few blocks live through it.
const threads = 3

func startProgram(t testing.TB, mode string) *program {
	t.Helper()
	return startBuild(t, mode, tracertest.Build(t, "liveness.c", "-pthread"))
}

// startBuild starts a build of the program, and maps the table that it keeps of its blocks.
func startBuild(t testing.TB, mode string, command ...string) *program {
	t.Helper()
	const slots = 8000
	table := filepath.Join(t.TempDir(), "table")
	size := 2 * slots * int(unsafe.Sizeof(slot{}))
	tracertest.NoError(t, os.WriteFile(table, make([]byte, size), 0o600))
	f := tracertest.Must(os.Open(table))(t)
	defer f.Close()
	memory := tracertest.Must(unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED))(t)
	t.Cleanup(func() { unix.Munmap(memory) })

	command = append(command, table, fmt.Sprint(threads), fmt.Sprint(slots), mode)
	all := unsafe.Slice((*slot)(unsafe.Pointer(&memory[0])), 2*slots)
	p := &program{
		Target: tracertest.StartCommand(t, exec.Command(command[0], command[1:]...)), t: t,
		slots: all[:slots], freed: all[slots:],
	}
	p.Await("ready")
	p.process = openProcess(t, p.PID())
	return p
}

func openProcess(t testing.TB, pid int) *process.Process {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

func mapsOf(t testing.TB, p *process.Process) []process.Mapping {
	t.Helper()
	maps := tracertest.Must(p.Maps())(t)
	return maps
}

func mustFind(t testing.TB, p *process.Process) ProcessAllocator {
	t.Helper()
	found := AllocatorOf(p, mapsOf(t, p))
	tracertest.NoError(t, found.untrackable())
	return found
}

// liveObjects returns the blocks that are alive. survived reports whether the i-th one still is.
func (p *program) liveObjects() (objects []heap.Object, survived func(i int) bool) {
	type block struct {
		slot *slot
		turn uint64
	}
	var blocks []block
	for i := range p.slots {
		s := &p.slots[i]
		turn := atomic.LoadUint64(&s.turn)
		o := heap.Object{
			Address: atomic.LoadUint64(&s.address), Size: atomic.LoadUint64(&s.size),
		}
		if turn&1 == 1 && turn>>62 == 0 && atomic.LoadUint64(&s.turn) == turn {
			blocks, objects = append(blocks, block{s, turn}), append(objects, o)
		}
	}
	return objects, func(i int) bool {
		return atomic.LoadUint64(&blocks[i].slot.turn) == blocks[i].turn
	}
}

// freedObjects returns the blocks that were freed last, each once.
func (p *program) freedObjects() (objects []heap.Object) {
	seen := make(map[heap.Object]bool)
	for _, s := range p.freed {
		o := heap.Object{Address: s.address, Size: s.size}
		if s.turn == 1 && !seen[o] {
			seen[o] = true
			objects = append(objects, o)
		}
	}
	return objects
}

func (p *program) check(objects []heap.Object) []heap.State {
	p.t.Helper()
	if p.allocator.Allocator == nil {
		p.allocator = mustFind(p.t, p.process)
	}
	maps := mapsOf(p.t, p.process)
	memory, err := newPrivateMemory(p.process, maps)
	if err != nil {
		p.t.Fatal(err)
	}
	states, err := p.allocator.Check(memory, maps, objects)
	if err != nil {
		p.t.Fatal(err)
	}
	return states
}

// tally counts blocks by the result of a check.
type tally struct {
	alive, unknown    int // blocks that were alive all through a check
	freed, freedShown int // blocks freed, and those shown to be dead, while the program rests
	// blocks freed whose address was allocated again, and those shown to be dead all the same
	reused, reusedShown int
}

// checkLive checks live blocks until so many have been alive all through a check.
func (p *program) checkLive(c *tally, count int) {
	p.t.Helper()
	for goal := c.alive + count; c.alive < goal && !p.t.Failed(); {
		objects, survived := p.liveObjects()
		for i, s := range p.check(objects) {
			if !survived(i) {
				continue
			}
			c.alive++
			switch s {
			case heap.Dead:
				p.t.Errorf("%#x of %d bytes is alive", objects[i].Address, objects[i].Size)
			case heap.Unknown:
				c.unknown++
			}
		}
	}
}

// checkAtRest checks all blocks, live and freed, while the program rests.
func (p *program) checkAtRest(c *tally) {
	p.t.Helper()
	p.Say("stop")
	p.Await("stopped")

	p.checkLive(c, 1)
	live := make(map[uint64]bool)
	objects, _ := p.liveObjects()
	for _, o := range objects {
		live[o.Address] = true
	}

	freed := p.freedObjects()
	if p.allocator.name == "jemalloc" || len(p.allocator.others) > 0 {
		p.check(freed)
		time.Sleep(time.Second) // as long as a thread cache must have an object
	}
	for i, s := range p.check(freed) {
		shown := 0
		if s == heap.Dead {
			shown = 1
		}
		if live[freed[i].Address] {
			c.reused, c.reusedShown = c.reused+1, c.reusedShown+shown
		} else {
			c.freed, c.freedShown = c.freed+1, c.freedShown+shown
		}
	}

	p.Say("go")
	p.Await("going")
}

// mustCheck checks that no live block is called dead, and that nearly all free ones are. Nothing
// shows blocks that lie inside another one that was never written to.
func (p *program) mustCheck() {
	p.t.Helper()
	p.mustShow(95)
}

// mustShow is mustCheck for so many percent of the free blocks.
func (p *program) mustShow(percent int) {
	p.t.Helper()
	const count = 1500 // in each round
	var c tally
	for range 2 {
		p.checkLive(&c, count)
		p.checkAtRest(&c)
	}

	p.t.Logf("%+v", c)
	if c.unknown > 0 {
		p.t.Errorf("%d live blocks are unknown", c.unknown)
	}
	if c.freed < 1000 || c.freedShown < c.freed*percent/100 {
		p.t.Errorf("%d of %d free blocks are shown to be dead", c.freedShown, c.freed)
	}
	// The places of the others have one size alone.
	_, isGlibc := p.allocator.Allocator.(*glibc.Malloc)
	if isGlibc && c.reused > 100 && c.reusedShown == 0 {
		p.t.Errorf("none of %d blocks whose address was reused is shown to be dead", c.reused)
	}
}

func TestCheck(t *testing.T) {
	for _, mode := range []string{"mixed", "fast", "lru"} {
		t.Run(mode, func(t *testing.T) {
			p := startProgram(t, mode)
			p.mustCheck()
			p.mustHoldBlocks()
			p.mustWalk()
		})
	}

	t.Run("static program", func(t *testing.T) {
		path := tracertest.Build(t, "liveness.c", "-pthread", "-static")
		startBuild(t, "mixed", path).mustCheck()
	})

	t.Run("more threads than arenas", func(t *testing.T) {
		t.Setenv("MALLOC_ARENA_MAX", "2")
		startProgram(t, "mixed").mustCheck()
	})

	testReleases(t)
	t.Run("of a library alone", testOwnMalloc)

	t.Run("objects of Python", func(t *testing.T) {
		p, objects := startPython(t)
		a := mustFind(t, p)
		counts := make(map[string]map[heap.State]int)
		for kind, objects := range objects {
			states := tracertest.Must(a.Check(p, mapsOf(t, p), objects))(t)
			counts[kind] = make(map[heap.State]int)
			for _, s := range states {
				counts[kind][s]++
			}
		}
		if counts["live"][heap.Alive] != 10000 || counts["dead"][heap.Dead] < 9500 {
			t.Errorf("%v", counts)
		}
	})
}

// testOwnMalloc checks the blocks of a library that does not use the malloc of its process.
func testOwnMalloc(t *testing.T) {
	out := tracertest.Must(exec.Command("gcc", "-print-file-name=libjemalloc_pic.a").Output())(t)
	loader := tracertest.Build(t, "loader.c", "-ldl")
	t.Setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=16384")
	for name, archive := range map[string]string{
		"deep": strings.TrimSpace(string(out)), "apart": "-ldl", // another copy of the C library
	} {
		t.Run(name, func(t *testing.T) {
			library := tracertest.Build(t, "liveness.c", "-shared", "-fPIC", "-pthread",
				archive, "-lm")
			p := startBuild(t, "mixed", loader, name, library)
			p.mustCheck()

			// An allocator that was found before the library was loaded finds it.
			before := ProcessAllocator{Allocator: p.allocator.Allocator}
			after := before.Renewed(p.process, mapsOf(t, p.process))
			if len(after.others) != len(p.allocator.others) || after.files == nil {
				t.Errorf("%+v, want %+v", after, p.allocator)
			}
		})
	}
}

// releases returns the roots of other releases of Debian, where they have been unpacked (see
// testdata/interpreters.sh).
func releases() (roots []string) {
	pythons, _ := filepath.Glob("/var/cache/allocscope/interpreters/*/usr/bin/python3")
	for _, python := range pythons {
		roots = append(roots, strings.TrimSuffix(python, "/usr/bin/python3"))
	}
	return roots
}

// testReleases tests a program with the glibc of other releases.
func testReleases(t *testing.T) {
	for _, release := range releases() {
		t.Run("glibc of "+filepath.Base(release), func(t *testing.T) {
			libraries := release + "/usr/lib/x86_64-linux-gnu/"
			linker := libraries + "ld-linux-x86-64.so.2"
			path := tracertest.Build(t, "liveness.c", "-nodefaultlibs",
				libraries+"libc.so.6", libraries+"libpthread.so.0", linker, "-lgcc",
				"-Wl,--dynamic-linker="+linker, "-Wl,-rpath="+libraries)
			p := startBuild(t, "mixed", path)
			p.mustCheck()
			p.mustHoldBlocks()
		})
	}
}

func TestFindAllocator(t *testing.T) {
	// A heap in use for long has free chunks of nearly all sizes.
	t.Run("while all bins fill and change", func(t *testing.T) {
		t.Setenv("MALLOC_ARENA_MAX", "1")
		p := startProgram(t, "mixed")
		for range 200 {
			mustFind(t, p.process)
		}
	})

	t.Run("another allocator", func(t *testing.T) {
		t.Setenv("LD_PRELOAD", tracertest.Build(t, "preload.c", "-shared", "-fPIC"))
		p := startProgram(t, "lru")
		found := AllocatorOf(p.process, mapsOf(t, p.process))
		if !errors.Is(found.err, errUnknown) || found.Allocator != nil {
			t.Errorf("%+v", found)
		}
	})

	t.Run("a version that is not known", func(t *testing.T) {
		t.Setenv("LD_PRELOAD", tracertest.Build(t, "preload.c", "-shared", "-fPIC",
			"-Wl,--defsym,mi_free=free"))
		p := startProgram(t, "lru")
		p.awaitBlocks() // in the arenas of threads, which may pass for segments
		m, err := Identify(p.process, mapsOf(t, p.process))
		if err != nil || m.Name != "mimalloc" || m.Limit != growth.HeapUnknownVersion {
			t.Errorf("%+v, %v", m, err)
		}
	})

	t.Run("below the shim", func(t *testing.T) {
		library := tracertest.Must(shim.Write(t.TempDir()))(t)
		defer library.Close()
		path := library.Name()
		for preload, want := range map[string]string{
			path: "glibc", path + ":libjemalloc.so.2": "jemalloc",
			"libjemalloc.so.2:" + path: "jemalloc",
		} {
			t.Setenv("LD_PRELOAD", preload)
			p := startProgram(t, "lru")
			mustFind(t, p.process)
			m, err := Identify(p.process, mapsOf(t, p.process))
			if m.Name != want || m.Limit == growth.HeapUnknownVersion || err != nil {
				t.Errorf("%s: %+v, %v, want %s", preload, m, err, want)
			}
		}
	})
}

const pythonObjects = `
import random, sys
random.seed(1)
made = [bytes(random.randrange(512, 20000)) for _ in range(20000)]
lines = []
for i, b in enumerate(made):
    lines.append("%s %d %d" % ("live" if i % 2 else "dead", id(b), sys.getsizeof(b)))
lines = "\n".join(lines)
del b
made[::2] = [None] * 10000
print(lines)
print("ready", flush=True)
input()
`

// startPython runs an interpreter, which uses the heap for much else, and returns the live and
// dead objects that it prints.
func startPython(t testing.TB) (*process.Process, map[string][]heap.Object) {
	t.Helper()
	return startPythonScript(t, "/", pythonObjects)
}

// startPythonScript runs the interpreter of a release, by its root.
func startPythonScript(
	t testing.TB, root, script string,
) (*process.Process, map[string][]heap.Object) {
	t.Helper()
	command := exec.Command("chroot", root, "/usr/bin/python3", "-c", script)
	python := tracertest.StartCommand(t, command)
	objects := make(map[string][]heap.Object)
	for _, line := range python.Await("ready") {
		var kind string
		var o heap.Object
		tracertest.Must(fmt.Sscanf(line, "%s %d %d", &kind, &o.Address, &o.Size))(t)
		objects[kind] = append(objects[kind], o)
	}
	return openProcess(t, python.PID()), objects
}

// BenchmarkCheck measures the CPU time of a check. 50 ms every 10 s are 0.5 % of a core.
func BenchmarkCheck(b *testing.B) {
	p, objects := startPython(b)
	a, maps := mustFind(b, p), mapsOf(b, p)

	used := process.MeasureCPUTime(func() {
		for b.Loop() {
			if _, err := a.Check(p, maps, objects["live"]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.ReportMetric(used.Seconds()*1e3/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(len(objects["live"])), "objects")
}
