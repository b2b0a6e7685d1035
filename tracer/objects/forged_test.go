package objects_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestForged counts and searches the objects that testdata/forged.py has forged: both end, take
// little memory, and name nothing that keeps an object which is lost.
func TestForged(t *testing.T) {
	all := pythons(t)
	for i, what := range []string{"types", "containers", "modules", "pools", "words", "fan"} {
		for k, p := range all {
			if p.name == "system" || whole || k == i%len(all) {
				t.Run(what+"/"+p.name, func(t *testing.T) { testForged(t, p, what) })
			}
		}
	}
}

func startForged(t *testing.T, p python, what string) (*objects.Heap, []objects.Suspect) {
	t.Helper()
	target := tracertest.StartCommand(t, p.run(t, nil, "forged.py", what))
	var pid int
	var address uint64
	for _, line := range target.Await("done") {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "ready" {
			pid, _ = strconv.Atoi(fields[1])
			address, _ = strconv.ParseUint(fields[2], 10, 64)
		}
	}
	heap, err := objects.Open(openProcess(t, pid))
	if err != nil || address == 0 {
		t.Fatal(address, err)
	}
	t.Cleanup(func() { heap.Close() })
	return heap, []objects.Suspect{{Type: "__main__.Lost", Objects: []uint64{address}}}
}

// maxTaken is how much memory a census and a search may take together.
const maxTaken = 96 << 20

func testForged(t *testing.T, p python, what string) {
	heap, suspects := startForged(t, p, what)
	before := heapBytes()
	census := tracertest.Must(heap.Census(t.Context(), objects.CensusOptions{Samples: 16}))(t)
	for _, one := range census.Types {
		isSane := one.Type == growth.Printable(one.Type) && len(one.Type) <= 400 &&
			one.Count >= 0 && one.Bytes >= 0 && !math.IsInf(one.Bytes, 0) && one.Margin == 0
		if !isSane {
			t.Errorf("%+v", one)
		}
	}

	const limit = 5 * time.Second // of CPU time
	searches, err := heap.Search(t.Context(), suspects, limit)
	if err != nil || len(searches) != 1 {
		t.Fatalf("%+v, %v", searches, err)
	}
	found := searches[0]
	for _, path := range found.Paths {
		root := rootAsCode(path.Root)
		isTrue := what == "fan" && (root == "forged.kept" || root == "forged.Lost.shared" ||
			root == "forged.target")
		if !isTrue {
			t.Errorf("%s keeps it: %s", root, describe(found))
		}
	}
	if what == "fan" && len(found.Paths) == 0 {
		t.Error("nothing keeps what 300,000 tuples refer to")
	}
	if taken := heapBytes() - before; taken > maxTaken {
		t.Errorf("it has taken %d MiB", taken>>20)
	}
	t.Logf("census %v, cut %t; %s", census.Took, census.Cut, describe(found))
}

// heapBytes is the memory that Go has got from the kernel and has not given back, at most.
func heapBytes() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapSys - m.HeapReleased)
}

// TestDeadline counts and searches when the time is used up: neither is an error.
func TestDeadline(t *testing.T) {
	p := pythons(t)[0]
	heap, suspects := startForged(t, p, "fan")
	past, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()

	census, err := heap.Census(past, objects.CensusOptions{})
	if err != nil || !census.Cut || census.Missing == "" {
		t.Errorf("census %+v, %v", census, err)
	}
	for name, search := range map[string]func() ([]keeper.Search, error){
		"deadline":  func() ([]keeper.Search, error) { return heap.Search(past, suspects, time.Hour) },
		"CPU limit": func() ([]keeper.Search, error) { return heap.Search(t.Context(), suspects, 1) },
	} {
		found, err := search()
		if err != nil || len(found) != 1 || found[0].Reason != keeper.ReasonBudget ||
			found[0].Samples != 1 {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := heap.Census(canceled, objects.CensusOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("census: %v", err)
	}
	if _, err := heap.Search(canceled, suspects, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("search: %v", err)
	}
}
