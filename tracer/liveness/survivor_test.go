package liveness

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A tally counts what was said of blocks.
type tally struct {
	living, unknown int // blocks that lived all through a look
	dead, seen      int // freed ones, while the program rests
	taken, told     int // freed ones whose address was handed out again; those that are known to be dead all the same
}

// watch looks at living blocks until so many were looked at.
func (p *program) watch(c *tally, polls int) {
	p.t.Helper()
	for goal := c.living + polls; c.living < goal && !p.t.Failed(); {
		objects, turns := p.alive()
		for i, s := range p.look(objects) {
			if !p.survived(turns[i]) {
				continue
			}
			c.living++
			switch s {
			case Dead:
				p.t.Errorf("%#x of %d bytes is alive", objects[i].Address, objects[i].Size)
			case Unknown:
				c.unknown++
			}
		}
	}
}

// rest looks at all blocks, living and freed, while the program rests.
func (p *program) rest(c *tally) {
	p.t.Helper()
	p.stop()
	p.watch(c, 1)
	living := make(map[uint64]bool)
	objects, _ := p.alive()
	for _, o := range objects {
		living[o.Address] = true
	}
	freed := p.dead()
	for i, s := range p.look(freed) {
		told := 0
		if s == Dead {
			told = 1
		}
		if living[freed[i].Address] {
			c.taken, c.told = c.taken+1, c.told+told
		} else {
			c.dead, c.seen = c.dead+1, c.seen+told
		}
	}
	p.goOn()
}

// mustTell checks that no living block is called dead, and nearly all that are free are. Some are seen by nothing: what lies
// inside a block that was never written to.
func (p *program) mustTell(polls int) {
	p.t.Helper()
	var c tally
	for range 2 {
		p.watch(&c, polls/2)
		p.rest(&c)
	}
	p.t.Logf("%+v", c)
	if c.unknown > 0 {
		p.t.Errorf("of %d living blocks nothing is known", c.unknown)
	}
	if c.dead < 1000 || c.seen < c.dead*95/100 {
		p.t.Errorf("of %d free blocks %d are known to be", c.dead, c.seen)
	}
	if c.taken > 100 && c.told == 0 {
		p.t.Errorf("of %d blocks whose address was taken none is known to be dead", c.taken)
	}
}

func TestNoLivingBlockIsCalledDeadAndNearlyAllFreeOnesAre(t *testing.T) {
	for _, mode := range []string{"mixed", "fast", "lru"} {
		t.Run(mode, func(t *testing.T) { startProgram(t, 8, 8000, mode).mustTell(20000) })
	}
}

func TestStaticProgramsAreLikeOthers(t *testing.T) {
	path := tracertest.Build(t, "survivors.c", "-pthread", "-static")
	startWith(t, path, 4, 8000, "mixed").mustTell(10000)
}

func TestMoreThreadsThanArenasAreFollowed(t *testing.T) {
	t.Setenv("MALLOC_ARENA_MAX", "2")
	startProgram(t, 12, 8000, "mixed").mustTell(10000)
}

// Of a heap that has been used for long, free chunks are of nearly all sizes.
func TestTheMainArenaIsFoundWhileItsBinsFillAndChange(t *testing.T) {
	t.Setenv("MALLOC_ARENA_MAX", "1")
	p := startProgram(t, 12, 8000, "mixed")
	for range 200 {
		if _, err := Find(p.process, mapsOf(t, p.process)); err != nil {
			t.Fatal(err)
		}
	}
}

// releases are folders with other releases of Debian, where they have been unpacked (see testdata/interpreters.sh).
func releases() []string {
	found, _ := filepath.Glob("/var/cache/allocscope/interpreters/*/usr/bin/python3")
	for i := range found {
		found[i] = strings.TrimSuffix(found[i], "/usr/bin/python3")
	}
	return found
}

func TestOtherVersionsOfGlibcAreUnderstood(t *testing.T) {
	for _, release := range releases() {
		t.Run(filepath.Base(release), func(t *testing.T) {
			libraries := release + "/usr/lib/x86_64-linux-gnu/"
			linker := libraries + "ld-linux-x86-64.so.2"
			path := tracertest.Build(t, "survivors.c", "-nodefaultlibs", libraries+"libc.so.6", libraries+"libpthread.so.0", linker,
				"-lgcc", "-Wl,--dynamic-linker="+linker, "-Wl,-rpath="+libraries)
			p := startWith(t, path, 8, 8000, "mixed")
			p.mustTell(20000)
		})
	}
}

func TestAnotherAllocatorIsRefused(t *testing.T) {
	t.Setenv("LD_PRELOAD", tracertest.Build(t, "preload.c", "-shared", "-fPIC"))
	p := startProgram(t, 1, 10, "lru")
	if found, err := Find(p.process, mapsOf(t, p.process)); !errors.Is(err, ErrNotGlibc) || found != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// What a trainer holds: objects of an interpreter, which does much else with the heap.
func TestObjectsOfARealPythonAreFollowed(t *testing.T) {
	python := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", pythonObjects))
	objects := parseObjects(t, python.Await("ready"))
	c := make(map[string]map[State]int)
	p := openProcess(t, python.PID())
	maps := mapsOf(t, p)
	found, err := Find(p, maps)
	if err != nil {
		t.Fatal(err)
	}
	for what, some := range objects {
		states, err := found.Look(p, maps, some)
		if err != nil {
			t.Fatal(err)
		}
		c[what] = make(map[State]int)
		for _, s := range states {
			c[what][s]++
		}
	}
	if c["live"][Alive] != 10000 || c["dead"][Dead] < 9500 {
		t.Errorf("%v", c)
	}
	t.Log(c)
}

// parseObjects gives the objects of the lines that pythonObjects prints.
func parseObjects(t testing.TB, lines []string) map[string][]Object {
	t.Helper()
	objects := make(map[string][]Object)
	for _, line := range lines {
		var what string
		var o Object
		if _, err := fmt.Sscanf(line, "%s %d %d", &what, &o.Address, &o.Size); err != nil {
			t.Fatal(err)
		}
		objects[what] = append(objects[what], o)
	}
	return objects
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

// A look that takes 50 ms of a processor can be had every 10 s for 0.5 % of one; looks that take longer are rarer.
func BenchmarkLook(b *testing.B) {
	python := tracertest.StartCommand(b, exec.Command("/usr/bin/python3", "-c", pythonObjects))
	objects := parseObjects(b, python.Await("ready"))["live"]
	p := openProcess(b, python.PID())
	maps := mapsOf(b, p)
	found, err := Find(p, maps)
	if err != nil {
		b.Fatal(err)
	}
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	for b.Loop() {
		if _, err := found.Look(p, maps, objects); err != nil {
			b.Fatal(err)
		}
	}
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/1e6/float64(b.N), "cpu-ms/look")
	b.ReportMetric(float64(len(objects)), "objects")
}
