package tracertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// inPython are the APIs that cuda.py has, too.
var inPython = []string{"malloc", "pitch", "managed", "async", "pool", "create", "hostalloc", "allochost"}

func TestTheLibraryCountsWhatEachOrderOfThePythonProgramTakesAndGivesBack(t *testing.T) {
	g := Start(t, python, Source("cuda.py"))
	g.Await("ready")
	do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"))
	want := count{}
	for _, a := range apis {
		if !slices.Contains(inPython, a.name) {
			continue
		}
		for _, turn := range []struct {
			order   string
			objects int64
		}{{"hold %s 7 %d", 7}, {"free %s 2", -2}, {"churn %s 5 %d", 0}, {"threads 4 %s 25 %d", 100}, {"fail %s 3", 0}} {
			order := strings.NewReplacer("%s", a.name, "%d", fmt.Sprint(a.size)).Replace(turn.order)
			if said := do(g, order); len(said) != 0 {
				t.Errorf("%q said %q", order, said)
			}
			want.add(a, turn.objects)
			mustCount(t, g, order, want)
		}
	}
	for _, name := range inPython {
		do(g, "free "+name+" 105")
	}
	mustCount(t, g, "freeing everything", count{})
}
