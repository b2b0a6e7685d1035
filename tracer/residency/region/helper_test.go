package region

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	tracertest.Cleanup()
	os.Exit(code)
}

// A target is the memory of a process. It fails the test if what is not resident is asked for.
type target struct {
	*process.Process
	t       testing.TB
	pagemap *os.File
	windows map[uint64][]byte // of the page map, by their first page
	peeks   int
	calls   int
}

const window = 512 // pages

func openTarget(t testing.TB, pid int) *target {
	t.Helper()
	p, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pagemap.Close(); p.Close() })
	return &target{Process: p, t: t, pagemap: pagemap, windows: make(map[uint64][]byte)}
}

func (g *target) Resident(address uint64) bool {
	page := address / pageSize
	first := page - page%window
	if g.windows[first] == nil {
		entries := make([]byte, 8*window)
		if n, err := g.pagemap.ReadAt(entries, int64(first*8)); n == 0 {
			g.t.Fatalf("read pagemap at %#x: %v", address, err)
		}
		g.windows[first] = entries
	}
	return binary.LittleEndian.Uint64(g.windows[first][8*(page-first):])>>63 != 0
}

func (g *target) Peek(addresses []uint64, size int) [][]byte {
	g.calls++
	g.peeks += len(addresses)
	for _, address := range addresses {
		if !g.Resident(address) || address%pageSize+uint64(size) > pageSize {
			g.t.Fatalf("%d bytes at %#x were asked for, which is not resident or not of one page", size, address)
		}
	}
	contents, err := g.Process.Peek(addresses, size)
	if err != nil {
		g.t.Fatal(err)
	}
	return contents
}

func (g *target) maps() []process.Mapping {
	g.t.Helper()
	maps, err := g.Maps()
	if err != nil {
		g.t.Fatal(err)
	}
	return maps
}

// classify is Classify on the process as it is now; the regions are checked against the maps.
func (g *target) classify(starts ...uint64) []Region {
	g.t.Helper()
	clear(g.windows)
	maps := g.maps()
	regions := Classify(maps, starts, g)
	if fault := faultOf(maps, regions); fault != "" {
		g.t.Fatalf("%s\n%s", fault, show(regions))
	}
	return regions
}

// faultOf tells what is wrong with regions that are to cover exactly the maps; empty: nothing is.
func faultOf(maps []process.Mapping, regions []Region) string {
	var mapped, covered []span
	for _, m := range maps {
		mapped = extend(mapped, m)
	}
	for i, r := range regions {
		switch {
		case r.Start >= r.End:
			return fmt.Sprintf("region %x-%x is empty", r.Start, r.End)
		case i > 0 && r.Start < regions[i-1].End:
			return fmt.Sprintf("region %x-%x begins before the end of the one before, %x", r.Start, r.End, regions[i-1].End)
		case r.Class == "" || r.Name == "":
			return fmt.Sprintf("region %x-%x has class %q and name %q", r.Start, r.End, r.Class, r.Name)
		}
		covered = extend(covered, process.Mapping{Start: r.Start, End: r.End})
	}
	if !slices.Equal(mapped, covered) {
		return fmt.Sprintf("regions cover %x, the maps %x", covered, mapped)
	}
	return ""
}

func show(regions []Region) string {
	var text strings.Builder
	for _, r := range regions {
		fmt.Fprintf(&text, "%x-%x %s: %s\n", r.Start, r.End, r.Class, r.Name)
	}
	return text.String()
}

// of are the regions of a class.
func of(regions []Region, class Class) []Region {
	var some []Region
	for _, r := range regions {
		if r.Class == class {
			some = append(some, r)
		}
	}
	return some
}

// at is the region that holds an address.
func at(regions []Region, address uint64) Region {
	for _, r := range regions {
		if r.Start <= address && address < r.End {
			return r
		}
	}
	return Region{}
}

func bytesOf(regions []Region) (sum uint64) {
	for _, r := range regions {
		sum += r.End - r.Start
	}
	return sum
}
