package liveness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	tracertest.Cleanup()
	os.Exit(code)
}

// A slot is one of testdata/survivors.c: a block and its turn, which is odd while it is alive.
type slot struct{ turn, address, size, _ uint64 }

// A program is testdata/survivors.c while it runs.
type program struct {
	*tracertest.Target
	t       testing.TB
	process *process.Process
	slots   []slot // alive
	freed   []slot // turn 1: there is one
	found   *Allocator
}

func startProgram(t testing.TB, threads, slots int, mode string) *program {
	t.Helper()
	return startWith(t, tracertest.Build(t, "survivors.c", "-pthread"), threads, slots, mode)
}

// startWith starts a build of the program.
func startWith(t testing.TB, path string, threads, slots int, mode string) *program {
	t.Helper()
	table := filepath.Join(t.TempDir(), "table")
	size := 2 * slots * int(unsafe.Sizeof(slot{}))
	if err := os.WriteFile(table, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	all := unsafe.Slice((*slot)(unsafe.Pointer(&memory[0])), 2*slots)
	p := &program{Target: tracertest.StartCommand(t, exec.Command(path, table, fmt.Sprint(threads), fmt.Sprint(slots), mode)), t: t, slots: all[:slots], freed: all[slots:]}
	p.Await("ready")
	p.process = openProcess(t, p.PID())
	return p
}

func openProcess(t testing.TB, pid int) *process.Process {
	t.Helper()
	p, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func mapsOf(t testing.TB, p *process.Process) []process.Mapping {
	t.Helper()
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	return maps
}

// alive gives the blocks that are alive, with their turns.
func (p *program) alive() (objects []Object, turns map[int]uint64) {
	turns = make(map[int]uint64)
	for i := range p.slots {
		s := &p.slots[i]
		turn := atomic.LoadUint64(&s.turn)
		o := Object{atomic.LoadUint64(&s.address), atomic.LoadUint64(&s.size)}
		if turn&1 == 1 && turn>>62 == 0 && atomic.LoadUint64(&s.turn) == turn {
			turns[len(objects)] = turn | uint64(i)<<32
			objects = append(objects, o)
		}
	}
	return objects, turns
}

// survived reports whether the block of a turn is still alive.
func (p *program) survived(turn uint64) bool {
	return atomic.LoadUint64(&p.slots[turn>>32].turn) == turn&(1<<32-1)
}

// dead gives the blocks that were freed last, each once.
func (p *program) dead() []Object {
	var objects []Object
	seen := make(map[Object]bool)
	for _, s := range p.freed {
		o := Object{s.address, s.size}
		if s.turn == 1 && !seen[o] {
			seen[o] = true
			objects = append(objects, o)
		}
	}
	return objects
}

func (p *program) look(objects []Object) []State {
	p.t.Helper()
	maps := mapsOf(p.t, p.process)
	if p.found == nil {
		found, err := Find(p.process, maps)
		if err != nil {
			p.t.Fatal(err)
		}
		p.found = found
	}
	states, err := p.found.Look(p.process, maps, objects)
	if err != nil {
		p.t.Fatal(err)
	}
	return states
}

func (p *program) stop() { p.Say("stop"); p.Await("stopped") }
func (p *program) goOn() { p.Say("go"); p.Await("going") }
