package tracertest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const mib = 1 << 20

// An api of cuda.c: for one object of size bytes as an order says it, what the library has to count.
type api struct {
	name  string
	size  int64
	takes map[string]int64 // bytes by kind, each in one object
}

var apis = []api{
	{"malloc", 1000, map[string]int64{"device": 1000}},
	{"pitch", 1000, map[string]int64{"pitch": 3 * 1024}},
	{"managed", 70000, map[string]int64{"managed": 70000}},
	{"async", 1, map[string]int64{"async": 1}},
	{"async_ptsz", 512, map[string]int64{"async": 512}},
	{"pool", 513, map[string]int64{"pool": 513}},
	{"pool_ptsz", 5 * mib, map[string]int64{"pool": 5 * mib}},
	{"create", 2 * mib, map[string]int64{"created": 2 * mib}},
	{"create_host", 4 * mib, map[string]int64{"created_host": 4 * mib}},
	{"segment", 20 * mib, map[string]int64{"created": 20 * mib, "reserved": 20 * mib, "mapped": 20 * mib}},
	{"lent", 2 * mib, map[string]int64{"created": 2 * mib, "reserved": 2 * mib, "mapped": 2 * mib}},
	{"import", 6 * mib, map[string]int64{"created": 6 * mib, "imported": 6 * mib}},
	{"hostalloc", 5000, map[string]int64{"pinned": 5000}},
	{"allochost", 4096, map[string]int64{"pinned": 4096}},
	{"register", 9000, map[string]int64{"registered": 9000}},
}

// A count of our own of what there has to be, by kind.
type count map[string]amount

func (c count) add(a api, objects int64) {
	for kind, bytes := range a.takes {
		had := c[kind]
		c[kind] = amount{had.objects + objects, had.bytes + objects*bytes}
		if c[kind] == (amount{}) {
			delete(c, kind)
		}
	}
}

// startCUDA starts cuda.c, which has loaded nothing.
func startCUDA(t *testing.T) *Target {
	t.Helper()
	target := Start(t, Build(t, "cuda.c", "-pthread"))
	target.Await("ready")
	return target
}

func mustCount(t *testing.T, g *Target, after string, want count) {
	t.Helper()
	if got := totals(t, do(g, "totals")); !maps.Equal(got, want) {
		t.Errorf("after %q the library counts %v, want %v", after, got, want)
	}
}

func TestTheLibraryCountsWhatEachOrderOfTheCProgramTakesAndGivesBack(t *testing.T) {
	g := startCUDA(t)
	do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"))
	want := count{}
	for _, a := range apis {
		for _, turn := range []struct {
			order   string // %s is the API, %d the size
			objects int64
		}{
			{"hold %s 7 %d", 7},
			{"free %s 2", -2},
			{"elsewhere %s 1", -1},
			{"churn %s 5 %d", 0},
			{"threads 4 %s 25 %d", 100},
			{"fail %s 3", 0},
			{"refuse %s 4 %d", 0},
			{"keep %s 3", 0},
			{"free %s 50", -50},
		} {
			order := strings.NewReplacer("%s", a.name, "%d", fmt.Sprint(a.size)).Replace(turn.order)
			if said := do(g, order); len(said) != 0 {
				t.Errorf("%q said %q", order, said)
			}
			want.add(a, turn.objects)
			mustCount(t, g, order, want)
		}
	}
	do(g, "wrong 3")
	mustCount(t, g, "wrong 3", want)
	for _, a := range apis {
		do(g, fmt.Sprintf("free %s 54", a.name))
	}
	mustCount(t, g, "freeing everything", count{})
}

func TestAnAddressThatWasFreedIsHandedOutAgain(t *testing.T) {
	g := startCUDA(t)
	do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"))
	for _, pair := range [][2]string{{"malloc", "malloc"}, {"malloc", "async"}, {"async", "managed"}, {"managed", "pool_ptsz"}} {
		said := do(g, "hold "+pair[0]+" 9 3000", "reuse "+pair[0]+" "+pair[1]+" 9")
		if !slices.Equal(said, []string{"reused 9"}) {
			t.Errorf("%v: %q", pair, said)
		}
	}
}

func TestFunctionsThatTheLibraryGivesByNameDoTheSame(t *testing.T) {
	g := startCUDA(t)
	do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"), "resolve")
	want := count{}
	for _, a := range apis {
		do(g, fmt.Sprintf("hold %s 3 %d", a.name, a.size), "free "+a.name+" 1")
		want.add(a, 2)
	}
	mustCount(t, g, "hold and free", want)
}

func TestMemoryLivesUntilTheLastOfItsHandlesIsReleased(t *testing.T) {
	g := startCUDA(t)
	do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"))
	held := api{takes: map[string]int64{"created": 2 * mib}}
	mapped := api{takes: map[string]int64{"reserved": 2 * mib, "mapped": 2 * mib}}
	want := count{}
	do(g, "hold segment 10 2097152", "retain 4")
	want.add(held, 10)
	want.add(mapped, 10)
	mustCount(t, g, "retain", want)
	do(g, "free segment 10")
	want.add(held, -6)
	want.add(mapped, -10)
	mustCount(t, g, "free", want)
	do(g, "release 3")
	want.add(held, -3)
	mustCount(t, g, "release", want)
}

func TestWhatIsCreatedIsCountedByDevice(t *testing.T) {
	g := startCUDA(t)
	said := do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"), "hold create 1 2097152", "device 3", "hold segment 2 4194304",
		"hold create_host 1 2097152", "device 7", "hold lent 1 2097152", "free create 1", "devices")
	if want := []string{"3 8388608", "7 2097152"}; !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}

func TestAChildInheritsWhatIsHeldAndFreesItsOwn(t *testing.T) {
	g := startCUDA(t)
	said := do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"), "hold malloc 5 100", "hold allochost 2 100", "fork")
	var pid int
	if len(said) != 1 {
		t.Fatalf("%q", said)
	}
	if _, err := fmt.Sscanf(said[0], "child %d", &pid); err != nil || pid == g.PID() {
		t.Fatalf("%q", said)
	}
	do(g, "child free malloc 4", "child hold async 3 10")
	want := count{"device": {1, 100}, "pinned": {2, 200}, "async": {3, 30}}
	if got := totals(t, do(g, "child totals")); !maps.Equal(got, want) {
		t.Errorf("the child counts %v, want %v", got, want)
	}
	mustCount(t, g, "child", count{"device": {5, 500}, "pinned": {2, 200}})
}

func TestPinnedMemoryIsResident(t *testing.T) {
	g := startCUDA(t)
	do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"))
	before := inMemory(t, g.PID())
	do(g, "hold hostalloc 2 20000000", "hold allochost 2 20000000")
	if grown := inMemory(t, g.PID()) - before; grown < 80000000 || grown > 81*mib {
		t.Errorf("grown by %d bytes, want 80000000", grown)
	}
}

// inMemory gives the private bytes of a process, those that are in swap included.
func inMemory(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var name string
		var kib int64
		fmt.Sscan(line, &name, &kib)
		if name == "Anonymous:" || name == "Swap:" {
			bytes += kib << 10
		}
	}
	return bytes
}
