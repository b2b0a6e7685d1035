package region

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// target is the memory of a process. It fails the test on a read across the end of a page.
type target struct {
	*process.Process
	t testing.TB
}

func openTarget(t testing.TB, pid int) *target {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	return &target{p, t}
}

func (g *target) Peek(addresses []uint64, size int) ([][]byte, error) {
	for _, address := range addresses {
		if address%pageSize+uint64(size) > pageSize {
			g.t.Fatalf("read of %d bytes at %#x, not within a page", size, address)
		}
	}
	return g.Process.Peek(addresses, size)
}

func (g *target) maps() []process.Mapping {
	g.t.Helper()
	return tracertest.Must(g.Maps())(g.t)
}

// classify is Classify on the process as it is now. It checks the regions against the maps.
func (g *target) classify(starts ...uint64) []Region {
	g.t.Helper()
	maps := g.maps()
	regions := Classify(maps, starts, g)
	if err := checkCover(maps, regions); err != nil {
		g.t.Fatalf("%s\n%s", err, dump(regions))
	}
	return regions
}

// checkCover checks that regions are sorted, disjoint, and cover exactly the maps.
func checkCover(maps []process.Mapping, regions []Region) error {
	var mapped, covered []mem.Span
	for _, m := range maps {
		mapped = append(mapped, mem.Span{Start: m.Start, End: m.End})
	}

	var last uint64
	for _, r := range regions {
		if r.Start >= r.End || r.Start < last || r.Class == "" || r.Name == "" {
			return fmt.Errorf("region %+v after one that ends at %x", r, last)
		}
		last = r.End
		covered = append(covered, mem.Span{Start: r.Start, End: r.End})
	}
	if !slices.Equal(mem.MergeSpans(mapped), mem.MergeSpans(covered)) {
		return fmt.Errorf("regions cover %x, the maps %x", covered, mapped)
	}
	return nil
}

func dump(regions []Region) string {
	var text strings.Builder
	for _, r := range regions {
		fmt.Fprintf(&text, "%x-%x %s: %s\n", r.Start, r.End, r.Class, r.Name)
	}
	return text.String()
}

func ofClass(regions []Region, class Class) (found []Region, bytes uint64) {
	for _, r := range regions {
		if r.Class == class {
			found = append(found, r)
			bytes += r.End - r.Start
		}
	}
	return found, bytes
}

func regionAt(regions []Region, address uint64) Region {
	i := slices.IndexFunc(regions, func(r Region) bool {
		return r.Start <= address && address < r.End
	})
	if i < 0 {
		return Region{}
	}
	return regions[i]
}

// truth is a line that testdata/regions.c prints of an address range.
type truth struct {
	what, name string
	start, end uint64
	guard      uint64
}

// program is testdata/regions.c once all its memory is there, with its output.
type program struct {
	*target
	truths                []truth
	starts                []uint64
	chunks, bytes, arenas uint64
}

// startProgram runs the program, by a dynamic linker if one is given.
func startProgram(t *testing.T, linker []string, threads, maxArenas int) *program {
	t.Helper()
	binary := tracertest.Build(t, "regions.c", "-pthread")
	words := append(linker, binary, fmt.Sprint(threads))
	command := exec.Command(words[0], words[1:]...)
	command.Env = append(command.Environ(), fmt.Sprintf("MALLOC_ARENA_MAX=%d", maxArenas))

	running := tracertest.StartCommand(t, command)
	lines := running.Await("ready")
	p := &program{target: openTarget(t, running.PID())}
	for _, line := range lines {
		p.parse(line)
	}
	return p
}

func (p *program) parse(line string) {
	p.t.Helper()
	what, rest, _ := strings.Cut(line, " ")
	s := truth{what: what}
	var start uint64
	var err error

	switch what {
	case "chunks":
		_, err = fmt.Sscanf(rest, "%d %d", &p.chunks, &p.bytes)
	case "arenas":
		_, err = fmt.Sscanf(rest, "%d", &p.arenas)
	case "begin":
		_, err = fmt.Sscanf(rest, "%x", &start)
		p.starts = append(p.starts, start)
	case "stack":
		s.name = string(ThreadStack)
		_, err = fmt.Sscanf(rest, "%x %x %x", &s.start, &s.end, &s.guard)
		p.truths = append(p.truths, s)
	default:
		_, err = fmt.Sscanf(rest, "%s %x %x", &s.name, &s.start, &s.end)
		s.name = strings.ReplaceAll(s.name, "_", " ")
		p.truths = append(p.truths, s)
	}
	if err != nil {
		p.t.Fatalf("parse %q: %v", line, err)
	}
}

// mustMatch checks the regions against all that the program prints. slack is how many bytes too
// many the program may count for each chunk.
func (p *program) mustMatch(regions []Region, slack uint64) {
	p.t.Helper()
	arenaOfThread, threadOfArena := make(map[string]string), make(map[string]string)
	for _, s := range p.truths {
		r := regionAt(regions, s.start)
		ok := r.Start <= s.start && r.End >= s.end
		switch s.what {
		case "region":
			ok = ok && r.Start == s.start && r.End == s.end && string(r.Class) == s.name
		case "stack":
			ok = ok && r.Start == s.start-s.guard && r.End == s.end && string(r.Class) == s.name
		case "inside":
			ok = ok && string(r.Class) == s.name
		case "arena": // all heaps of a thread have the name of its arena
			arena := cmp.Or(arenaOfThread[s.name], r.Name)
			thread := cmp.Or(threadOfArena[r.Name], s.name)
			arenaOfThread[s.name], threadOfArena[r.Name] = arena, thread
			ok = ok && (r.Class == Arena || r.Class == MainHeap)
			ok = ok && arena == r.Name && thread == s.name
		}
		if !ok {
			p.t.Errorf("%s %s %x-%x (guard %x) is in %+v", s.what, s.name, s.start, s.end, s.guard, r)
		}
	}

	chunks, bytes := ofClass(regions, MmappedChunk)
	if uint64(len(chunks)) != p.chunks || p.chunks < 40 ||
		bytes > p.bytes || p.bytes-bytes > slack*p.chunks {
		p.t.Errorf("%d chunks of %d bytes, want %d of %d", len(chunks), bytes, p.chunks, p.bytes)
	}
	if p.t.Failed() {
		p.t.Log(dump(regions))
	}
}

// releases are folders with other releases of Debian (see testdata/interpreters.sh).
func releases() []string {
	found, _ := filepath.Glob("/var/cache/allocscope/interpreters/*/usr/bin/python3")
	for i := range found {
		found[i] = strings.TrimSuffix(found[i], "/usr/bin/python3")
	}
	return found
}

func TestClassify(t *testing.T) {
	for _, threads := range []int{1, 8, 33} {
		t.Run(fmt.Sprintf("ground truth, %d threads", threads), func(t *testing.T) {
			p := startProgram(t, nil, threads, 100)
			p.mustMatch(p.classify(p.starts...), 0)

			// Without starts some chunks stay hidden, but nothing else is taken for one.
			chunks, _ := ofClass(p.classify(), MmappedChunk)
			if len(chunks) == 0 {
				t.Error("the maps alone show no chunk")
			}
			for _, r := range chunks {
				want := truth{what: "region", name: string(MmappedChunk), start: r.Start, end: r.End}
				if !slices.Contains(p.truths, want) {
					t.Errorf("%x-%x is taken for a chunk", r.Start, r.End)
				}
			}
		})
	}

	for _, limit := range []int{1, 2, 5, 100} {
		t.Run(fmt.Sprintf("MALLOC_ARENA_MAX=%d", limit), func(t *testing.T) {
			p := startProgram(t, nil, 12, limit)
			heaps, _ := ofClass(p.classify(), Arena)
			names := make(map[string]bool)
			for _, r := range heaps {
				names[r.Name] = true
			}

			if uint64(len(names))+1 != p.arenas || p.arenas > uint64(limit) {
				t.Errorf("arenas %v, malloc has %d", names, p.arenas)
			}
			if limit == 100 && len(heaps) <= len(names) { // one arena fills more than a heap
				t.Errorf("%d heaps of %d arenas", len(heaps), len(names))
			}
		})
	}

	for _, release := range releases() {
		if filepath.Base(release) == "bullseye" { // its glibc is older than the program's
			continue
		}
		t.Run("glibc of "+filepath.Base(release), func(t *testing.T) {
			libraries := release + "/usr/lib/x86_64-linux-gnu"
			linker := []string{libraries + "/ld-linux-x86-64.so.2", "--library-path", libraries}
			p := startProgram(t, linker, 8, 100)
			// 2.43 counts 16 bytes too many for each chunk that realloc has grown.
			p.mustMatch(p.classify(p.starts...), 16)
		})
	}
}

// interpreters are the commands of the Pythons of this machine: the system's, pyenv's from 3.8 on,
// and the ones of other releases of Debian.
func interpreters() map[string][]string {
	found := map[string][]string{"system": {"/usr/bin/python3"}}
	for _, version := range []string{"3.8", "3.9", "3.1?"} {
		pattern := filepath.Join(os.Getenv("HOME"), ".pyenv/versions", version+".*/bin/python3")
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			found[filepath.Base(filepath.Dir(filepath.Dir(path)))] = []string{path}
		}
	}
	for _, release := range releases() {
		found[filepath.Base(release)] = []string{"chroot", release, "/usr/bin/python3"}
	}
	return found
}

func TestPymallocArenas(t *testing.T) {
	script := tracertest.Must(os.ReadFile(tracertest.Source("arenas.py")))(t)

	for name, command := range interpreters() {
		t.Run(name, func(t *testing.T) {
			running := tracertest.Start(t, command[0], append(command[1:], "-c", string(script))...)
			var count, size uint64 // as sys._debugmallocstats prints them
			for _, line := range running.Await("ready") {
				if strings.Contains(line, "bytes/arena") {
					fmt.Sscanf(line, "%d arenas * %d bytes/arena", &count, &size)
				}
			}

			regions := openTarget(t, running.PID()).classify()
			arenas, bytes := ofClass(regions, PythonArena)
			if count < 10 || uint64(len(arenas)) != count || bytes != count*size {
				t.Errorf("%d arenas of %d bytes, want %d of %d\n%s",
					len(arenas), bytes, count, count*size, dump(regions))
			}
		})
	}
}
