package probe

import (
	"os/exec"
	"reflect"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A second question about the same mappings reads no file. Any other order of files is new.
func TestResolved(t *testing.T) {
	p, maps := start(t, exec.Command(tracertest.Build(t, "semantics.c", "-pthread")))
	resolving := func(of *process.Process) (found []FileSites, bytes int64) {
		before := tracertest.BytesRead(t)
		found = tracertest.Must(Resolve(of, maps))(t)
		return found, tracertest.BytesRead(t) - before
	}

	first, read := resolving(p)
	want := slices.Clone(first[0].Sites)
	clear(first[0].Sites) // as a caller may
	second, readAgain := resolving(p)
	if readAgain > read/2 {
		t.Errorf("%d bytes were read, and then %d", read, readAgain)
	}
	if !reflect.DeepEqual(second[0].Sites, want) {
		t.Errorf("found %+v, and then %+v", want, second[0].Sites)
	}

	order := tracertest.Must(searchOrder(p, maps))(t)
	others := otherFiles(maps, order)
	for i := range order {
		moved := slices.Clone(order)
		moved[i].Start++
		if resolved.of(p, moved, others) != nil || resolved.of(p, order[:i], others) != nil {
			t.Errorf("with another mapping of %s the answer is the same", order[i].Path)
		}
	}
}

func TestResolvedIsBounded(t *testing.T) {
	var r resolutions
	for range 3 * maxResolved {
		r.keep(new(process.Process), resolution{})
	}
	if len(r.by) > maxResolved {
		t.Errorf("%d processes are kept, want %d at most", len(r.by), maxResolved)
	}
}
