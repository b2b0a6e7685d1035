package objects

import (
	"encoding/binary"
	"math/bits"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// readSuspects returns the suspects of the lines "NAME WANT ADDRESS..." of a program.
func readSuspects(t *testing.T, lines []string) (names, wants []string, suspects []Suspect) {
	t.Helper()
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		if want, addresses := NumbersOf(t, rest); len(addresses) > 0 {
			names, wants = append(names, name), append(wants, want)
			suspects = append(suspects, Suspect{Stack: uint64(len(names)), Objects: addresses})
		}
	}
	return names, wants, suspects
}

func openHeap(t *testing.T, pid int) *Heap {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	h := tracertest.Must(Open(p))(t)
	t.Cleanup(func() { h.Close() })
	return h
}

// TestSweep searches for references to the blocks of testdata/held_blocks.c. A block with a
// reference is not lost, wherever that is.
func TestSweep(t *testing.T) {
	tracertest.NeedsRoot(t)
	for name, library := range map[string]string{
		"glibc": "", "jemalloc": "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2",
	} {
		t.Run(name, func(t *testing.T) { mustSweep(t, library) })
	}
}

func mustSweep(t *testing.T, library string) {
	t.Helper()
	command := exec.Command(tracertest.Build(t, "held_blocks.c", "-pthread"))
	command.Env = append(command.Environ(), "LD_PRELOAD="+library)
	target := tracertest.StartCommand(t, command)
	names, wants, suspects := readSuspects(t, target.Await("kinds end"))
	h := openHeap(t, target.PID())

	sweeps := make([]*keeper.Sweep, len(suspects))
	isLate := func(l *keeper.Sweep) bool { return l.Premise == keeper.PremiseBudget }
	for range 10 { // a machine that is busy makes a pass take too long to prove anything
		for i, s := range suspects {
			sweeps[i] = &keeper.Sweep{Lost: slices.Clone(s.Objects), Samples: len(s.Objects)}
		}
		tracertest.NoError(t, h.refresh())
		tracertest.NoError(t, h.sweep(newBudget(t.Context(), time.Minute), sweeps))
		if !slices.ContainsFunc(sweeps, isLate) {
			break
		}
	}
	for i, l := range sweeps {
		isRight := len(l.Lost) == 0
		if wants[i] == "lost" {
			isRight = len(l.Lost) >= len(suspects[i].Objects)-1
		}
		if l.Premise != keeper.PremiseHolds || !isRight {
			t.Errorf("%s: %d of %d are lost (%q), want %s", names[i], len(l.Lost), l.Samples,
				l.Premise, wants[i])
		}
	}
	if len(names) != 20 {
		t.Errorf("%d kinds", len(names))
	}
}

// TestSweepFor keeps the reason that a search has found, where there is nothing to sweep for.
func TestSweepFor(t *testing.T) {
	results := []keeper.Search{
		{Sweep: keeper.Sweep{Samples: 16, Premise: keeper.PremiseRuntime, Runtime: "V8"}},
		{Sweep: keeper.Sweep{Samples: 16, Lost: []uint64{1}}},
	}
	tracertest.NoError(t, new(Heap).sweepFor(nil, results))
	if results[0].Sweep.Runtime != "V8" || results[1].Sweep.Lost != nil {
		t.Errorf("%+v", results)
	}
}

// proofOfHeld starts held_blocks.c, and lists its memory for a proof.
func proofOfHeld(t *testing.T) (
	target *tracertest.Target, names []string, suspects []Suspect, p *proof,
) {
	t.Helper()
	target = tracertest.Start(t, tracertest.Build(t, "held_blocks.c", "-pthread"))
	names, _, suspects = readSuspects(t, target.Await("kinds end"))
	h := openHeap(t, target.PID())
	tracertest.NoError(t, h.refresh())
	p = tracertest.Must(h.newProof(newBudget(t.Context(), time.Minute)))(t)
	return target, names, suspects, p
}

// TestSweepMoved moves all references to some blocks after the memory was listed, to a mapping that
// is not in the list.
func TestSweepMoved(t *testing.T) {
	tracertest.NeedsRoot(t)
	target, names, suspects, p := proofOfHeld(t)

	target.Say("move")
	target.Await("moved")
	moved := suspects[slices.Index(names, "moving")].Objects
	lost, alive := [][]uint64{moved}, []int{0}
	failed, err := p.run(lost, alive, make([]int, len(alive)))
	if err != nil || failed.Premise != keeper.PremiseHolds {
		t.Fatalf("%q, %v", failed.Premise, err)
	}
	if len(lost[0]) > 0 || alive[0] != len(moved) {
		t.Errorf("%d are lost and %d alive of %d that are held", len(lost[0]), alive[0], len(moved))
	}
}

// TestSweepCycles sweeps cycles before and after the garbage collector has run: it frees the ones
// whose references it sees. An earlier sweep reads nothing.
func TestSweepCycles(t *testing.T) {
	tracertest.NeedsRoot(t)
	source := tracertest.Must(os.ReadFile(tracertest.Source("hidden_cycles.py")))(t)
	for name, command := range tracertest.Interpreters(t, "minors") {
		// Their instances have values in another block, and in their own.
		if name != "system" && name != "debian-forky-3.15" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			words := append(command, "-c", string(source))
			testSweepCycles(t, tracertest.Start(t, words[0], words[1:]...))
		})
	}
}

func testSweepCycles(t *testing.T, target *tracertest.Target) {
	names, _, suspects := readSuspects(t, target.Await("kinds end"))
	h := openHeap(t, target.PID())
	sweep := func() []keeper.Search {
		t.Helper()
		found, err := h.Sweep(t.Context(), suspects, time.Minute)
		if err != nil || len(found) != 2 {
			t.Fatalf("%+v, %v", found, err)
		}
		return found
	}

	first := sweep()
	for i, s := range first {
		l := &s.Sweep
		if !l.AreMany() || len(l.Lost) != l.Cycles || l.After == nil {
			t.Errorf("%s: %+v, want cycles", names[i], l)
		}
		suspects[i].Collections = l.MinCollections()
	}
	if early := sweep(); !early[0].Sweep.IsEarly || !early[1].Sweep.IsEarly {
		t.Errorf("%+v, want none before the collection", early)
	}

	target.Say("collect")
	target.Await("collected")
	second := sweep()
	if l := second[0].Sweep; len(l.Lost) > 0 {
		t.Errorf("%s: %+v, want them freed", names[0], l)
	}
	if h.python.Version().Minor > 12 { // gc sees the memo of a pickler
		return
	}
	l := second[1].Sweep
	freed := l.Before.Collected - first[1].Sweep.After.Collected
	if len(l.Lost) < keeper.MinLost || l.Cycles != len(l.Lost) || freed < 400 {
		t.Errorf("%s: %+v after %d were freed, want them lost", names[1], l, freed)
	}
}

// TestStill changes the known references within a lost list: they are not as before.
func TestStill(t *testing.T) {
	tracertest.NeedsRoot(t)
	_, names, suspects, p := proofOfHeld(t)

	list := [][]uint64{suspects[slices.Index(names, "lost-list")].Objects}
	tracertest.Must(p.run(list, []int{0}, []int{0}))(t)
	linked := 0
	for _, m := range p.members {
		if len(m.referers) == 0 {
			continue
		}
		linked++
		before := p.isStill([]*member{m})
		m.word++
		if after := p.isStill([]*member{m}); !before || after {
			t.Errorf("%#x: %v, and %v once it has changed", m.address, before, after)
		}
	}
	if linked < len(list[0])/2 {
		t.Errorf("%d linked blocks", linked)
	}
}

// TestMatch writes the address of a block in many ways. A word that leads into the block, or to its
// end, is a reference, and one that only looks like it is none.
func TestMatch(t *testing.T) {
	const low, high = 0x1d2f4a0, 0x7f3412345670
	for name, c := range map[string]struct {
		address, word uint64
		at            int
		isKept        bool
	}{
		"start":                   {high, high, 8, true},
		"interior":                {high, high + 100, 8, true},
		"end":                     {high, high + 200, 8, true},
		"after it":                {high, high + 208, 8, false},
		"before it":               {high, high - 8, 8, false},
		"tag of 17 bits":          {high, high | 0x1ffff<<47, 8, true},
		"counter of 16 bits":      {high, high<<16 | 0xffff, 8, true},
		"counter of 8 bits":       {high, high<<8 | 0xff, 8, true},
		"packed":                  {high, high, 13, true},
		"at the end of the piece": {high, high, 56, true},
		"two digits":              {high, high&(1<<30-1) | high>>30<<32, 8, true},
		"other order of bytes":    {high, bits.ReverseBytes64(high), 8, false},
		"48 bits":                 {high + 1<<47, high + 1<<47, 8, true},
		"low":                     {low, low, 8, true},
		"low, packed":             {low, low, 12, true},
		"low, by chance":          {low, low, 13, false},
	} {
		content := make([]byte, 64)
		binary.LittleEndian.PutUint64(content[c.at:], c.word)
		m := &member{node: &node{block: block{
			mem.Span{Start: c.address, End: c.address + 200}, blockChunk,
		}}}
		p := &proof{
			heap: &Heap{types: &typeTable{}}, filter: make([]uint64, filterBits/64),
			memory: &wholeMemory{memory: &memory{}},
		}

		p.aim([]*member{m})
		all := mem.Span{Start: 0x10000, End: 0x10040}
		p.match(&piece{
			Piece:  mem.Piece{Start: all.Start, Bytes: content},
			region: region{all, regionOther},
		})
		if m.kept != c.isKept {
			t.Errorf("%s: %v", name, m.kept)
		}
	}
}

// TestCopies has pointers to two blocks in a freed chunk: in a table, and on their own.
func TestCopies(t *testing.T) {
	const first, second, size = 0x7f3412345670, 0x7f3412345870, 200
	for name, c := range map[string]struct {
		words []uint64
		want  bool
	}{
		"a table":         {[]uint64{first, first + 4096, second}, true},
		"one block alone": {[]uint64{first, first + 4096, first}, false},
		"no table":        {[]uint64{first, 0, second}, false},
		"beside numbers":  {[]uint64{first, 17, second}, false},
	} {
		content := make([]byte, 512)
		for i, w := range c.words {
			binary.LittleEndian.PutUint64(content[64+wordSize*i:], w)
		}
		all := mem.Span{Start: 0x555500010000, End: 0x555500010200}
		p := &proof{
			heap: &Heap{}, memory: &wholeMemory{memory: &memory{}},
			filter: make([]uint64, filterBits/64), freed: make(map[uint64]*member),
		}
		var members []*member
		for _, start := range []uint64{first, second} {
			own := block{mem.Span{Start: start, End: start + size}, blockChunk}
			members = append(members, &member{node: &node{block: own}})
		}

		p.aim(members)
		p.match(&piece{
			Piece:  mem.Piece{Start: all.Start, Bytes: content},
			region: region{all, regionHeap},
			chunks: []glibc.Chunk{{Start: all.Start, Size: all.Len()}},
		})
		for _, m := range members {
			if m.isCopied != c.want || m.kept {
				t.Errorf("%s: copied %v, kept %v", name, m.isCopied, m.kept)
			}
		}
	}
}
