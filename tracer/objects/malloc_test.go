package objects

import (
	"context"
	"math"
	"os/exec"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Objects of all sizes: in pools, in heaps and with mappings of their own. The first large object
// that is freed sets the size from which on glibc makes mappings. The data beside moves the table
// of large into a slab of jemalloc that is alone between large objects.
const sizesScript = `
beside = [bytes(840) for i in range(8)]
class Small: __slots__ = "payload"
class Middle(bytes): pass
class Large(bytes): pass
class Huge(bytes): pass
for_threshold = bytes(5000000)
del for_threshold
small = [Small() for i in range(3000)]
middle = [Middle(1000 + i % 500) for i in range(20000)]
large = [Large(600000) for i in range(100)]
huge = [Huge(6000000) for i in range(20)]
print("ready", flush=True)
input()
`

// All mallocs have the same objects, in blocks of their own.
func TestMallocs(t *testing.T) {
	for name, variable := range map[string]string{
		"glibc":               "",
		"jemalloc":            "LD_PRELOAD=libjemalloc.so.2",
		"mimalloc":            "LD_PRELOAD=libmimalloc.so.2",
		"PYTHONMALLOC=malloc": "PYTHONMALLOC=malloc",
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command("/usr/bin/python3", "-c", sizesScript)
			if variable != "" {
				command.Env = append(command.Environ(), variable)
			}
			target := tracertest.StartCommand(t, command)
			target.Await("ready")
			h := openHeap(t, target.PID())
			mustCountSizes(t, h)
		})
	}
}

// mustSample counts the objects in half of the memory: those that are large all the same. The
// others are in dozens of windows, and the interval of 95% is made four times as wide: this has
// to hold always.
func mustSample(t *testing.T, h *Heap) {
	t.Helper()
	counted := tracertest.Must(h.Census(context.Background(), CensusOptions{Share: 0.5}))(t)
	want := map[string]float64{"__main__.Middle": 20000, "__main__.Large": 100, "__main__.Huge": 20}
	for _, one := range counted.Types {
		if w, ok := want[one.Type]; ok && math.Abs(one.Count-w) > 4*one.Margin+0.5 {
			t.Errorf("%+v, want %.0f", one, w)
		}
	}
}

func mustCountSizes(t *testing.T, h *Heap) {
	t.Helper()
	counted := tracertest.Must(h.Census(context.Background(), CensusOptions{Samples: 4}))(t)
	if counted.Missing != "" {
		t.Error(counted.Missing)
	}
	counts := make(map[string]float64)
	for _, one := range counted.Types {
		counts[one.Type] = one.Count
	}

	mustSample(t, h)

	var suspects []Suspect
	names := []string{"small", "middle", "large", "huge"}
	for i, class := range []string{"Small", "Middle", "Large", "Huge"} {
		class = "__main__." + class
		if want := []float64{3000, 20000, 100, 20}[i]; counts[class] != want {
			t.Errorf("%.0f objects of %s, want %.0f", counts[class], class, want)
		}
		suspects = append(suspects, Suspect{Type: class, Objects: counted.Samples[class]})
	}
	found := tracertest.Must(h.Search(context.Background(), suspects, time.Minute))(t)
	for i, s := range found {
		isNamed := len(s.Paths) == 1 && s.Paths[0].Root.Kind == keeper.RootGlobal &&
			s.Paths[0].Root.Name == names[i]
		if !isNamed {
			t.Errorf("%+v", s)
		}
	}
}
