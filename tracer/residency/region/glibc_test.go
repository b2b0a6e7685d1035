package region

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A truth is a line that testdata/regions.c prints of an address range.
type truth struct {
	what, name string
	start, end uint64
	guard      uint64
}

// A program is testdata/regions.c when all its memory is there, and what it says of that.
type program struct {
	*target
	truths                []truth
	starts                []uint64
	chunks, bytes, arenas uint64
}

func startProgram(t *testing.T, threads int, environment ...string) *program {
	t.Helper()
	return startWith(t, nil, threads, environment...)
}

// startWith is startProgram by another dynamic linker.
func startWith(t *testing.T, linker []string, threads int, environment ...string) *program {
	t.Helper()
	words := append(linker, tracertest.Build(t, "regions.c", "-pthread"), fmt.Sprint(threads))
	command := exec.Command(words[0], words[1:]...)
	command.Env = append(command.Environ(), environment...)
	running := tracertest.StartCommand(t, command)
	lines := running.Await("ready")
	p := &program{target: openTarget(t, running.PID())}
	for _, line := range lines {
		p.learn(line)
	}
	return p
}

func (p *program) learn(line string) {
	p.t.Helper()
	what, rest, _ := strings.Cut(line, " ")
	var err error
	switch what {
	case "chunks":
		_, err = fmt.Sscanf(rest, "%d %d", &p.chunks, &p.bytes)
	case "arenas":
		_, err = fmt.Sscanf(rest, "%d", &p.arenas)
	case "begin":
		var start uint64
		_, err = fmt.Sscanf(rest, "%x", &start)
		p.starts = append(p.starts, start)
	case "stack":
		s := truth{what: what, name: string(ThreadStack)}
		_, err = fmt.Sscanf(rest, "%x %x %x", &s.start, &s.end, &s.guard)
		p.truths = append(p.truths, s)
	default:
		s := truth{what: what}
		_, err = fmt.Sscanf(rest, "%s %x %x", &s.name, &s.start, &s.end)
		s.name = strings.ReplaceAll(s.name, "_", " ")
		p.truths = append(p.truths, s)
	}
	if err != nil {
		p.t.Fatalf("understand %q: %v", line, err)
	}
}

// mustHold checks all that the program says of single ranges.
func (p *program) mustHold(regions []Region) {
	p.t.Helper()
	for _, s := range p.truths {
		r := at(regions, s.start)
		bad := r.Start > s.start || r.End < s.end
		switch s.what {
		case "region":
			bad = bad || r.Start != s.start || r.End != s.end || string(r.Class) != s.name
		case "stack":
			bad = bad || r.End != s.end || r.Start != s.start-s.guard || string(r.Class) != s.name
		case "inside":
			bad = bad || string(r.Class) != s.name
		case "arena":
			bad = bad || r.Class != Arena && r.Class != MainHeap
		}
		if bad {
			p.t.Errorf("%s %s %x-%x (guard %x) is in %+v", s.what, s.name, s.start, s.end, s.guard, r)
		}
	}
	if p.t.Failed() {
		p.t.Log(show(regions))
	}
}

func TestEveryPieceOfMemoryIsOfTheKindThatTheProgramMadeIt(t *testing.T) {
	for _, threads := range []int{1, 8, 33} {
		p := startProgram(t, threads, "MALLOC_ARENA_MAX=100")
		p.mustHold(p.classify(p.starts...))
	}
}

func TestChunksAreAsManyAndAsLargeAsMallocSays(t *testing.T) {
	p := startProgram(t, 4)
	chunks := of(p.classify(p.starts...), Chunk)
	if uint64(len(chunks)) != p.chunks || bytesOf(chunks) != p.bytes || p.chunks < 40 {
		t.Errorf("%d chunks of %d bytes, want %d of %d\n%s", len(chunks), bytesOf(chunks), p.chunks, p.bytes, show(chunks))
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

func TestEveryPieceIsOfTheRightKindWithOtherVersionsOfGlibc(t *testing.T) {
	for _, release := range releases() {
		if filepath.Base(release) == "bullseye" { // its glibc is older than the one that the program is built for
			continue
		}
		t.Run(filepath.Base(release), func(t *testing.T) {
			libraries := release + "/usr/lib/x86_64-linux-gnu"
			linker := libraries + "/ld-linux-x86-64.so.2"
			p := startWith(t, []string{linker, "--library-path", libraries}, 8, "MALLOC_ARENA_MAX=100")
			regions := p.classify(p.starts...)
			p.mustHold(regions)
			// 2.43 counts 16 bytes too many for each chunk that realloc has grown.
			if chunks := of(regions, Chunk); uint64(len(chunks)) != p.chunks || bytesOf(chunks) != p.bytes&^(pageSize-1) {
				t.Errorf("%d chunks of %d bytes, want %d of %d", len(chunks), bytesOf(chunks), p.chunks, p.bytes)
			}
		})
	}
}

func TestThereAreAsManyArenasAsMallocSays(t *testing.T) {
	for _, limit := range []int{1, 2, 5, 100} {
		p := startProgram(t, 12, fmt.Sprintf("MALLOC_ARENA_MAX=%d", limit))
		names := make(map[string]bool)
		heaps := of(p.classify(), Arena)
		for _, r := range heaps {
			names[r.Name] = true
		}
		if uint64(len(names))+1 != p.arenas || int(p.arenas) > max(limit, 1) && limit < 100 {
			t.Errorf("MALLOC_ARENA_MAX=%d: arenas %v, malloc has %d", limit, names, p.arenas)
		}
		if limit == 100 && len(heaps) <= len(names) { // each thread has its own arena, and one fills more than a heap
			t.Errorf("%d heaps of %d arenas: none has more than one", len(heaps), len(names))
		}
	}
}

func TestAllHeapsOfAThreadHaveTheNameOfItsArena(t *testing.T) {
	p := startProgram(t, 8, "MALLOC_ARENA_MAX=100")
	regions := p.classify()
	owners := make(map[string]string) // thread by arena
	for _, s := range p.truths {
		if s.what != "arena" {
			continue
		}
		name := at(regions, s.start).Name
		if owner, ok := owners[name]; ok && owner != s.name {
			t.Fatalf("%s serves threads %s and %s", name, owner, s.name)
		}
		owners[name] = s.name
	}
	if len(owners) != 8 {
		t.Errorf("%d arenas serve 8 threads", len(owners))
	}
}

// Without being told where mappings begin, what lies above one of unknown use is not found, but nothing else is taken for it.
func TestOnlyChunksAreTakenForChunks(t *testing.T) {
	p := startProgram(t, 4)
	chunks := of(p.classify(), Chunk)
	if len(chunks) == 0 {
		t.Error("no chunk is found by the maps alone")
	}
	for _, r := range chunks {
		if !slices.Contains(p.truths, truth{what: "region", name: string(Chunk), start: r.Start, end: r.End}) {
			t.Errorf("%x-%x is taken for a chunk", r.Start, r.End)
		}
	}
}
