package torch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A described tensor is the program's output about one.
type described struct {
	Object, Storage, Data uint64
	Skipped, HasGradFn    bool
	DType, Device         string
	Shape                 []int64
	Bytes                 int64
	Saved                 bool // only Data and Bytes are set
}

// startDescribing starts testdata/tensor_objects.py on this system, or in the Debian 13 of
// testdata/peers/debian.sh. -I: PyTorch must not take testdata/cuda.py for CUDA's bindings.
func startDescribing(t *testing.T, inDebian13 bool) *tracertest.Target {
	t.Helper()
	program := tracertest.Must(filepath.Abs(tracertest.Source("tensor_objects.py")))(t)
	if !inDebian13 {
		return tracertest.Start(t, "/usr/bin/python3", "-I", program)
	}

	root := filepath.Join(
		cmp.Or(os.Getenv("ALLOCSCOPE_PEERS"), "/var/cache/allocscope/peers"), "trixie")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("there is no Debian 13 in %s: testdata/peers/debian.sh sets it up", root)
	}
	ours := fmt.Sprintf("/proc/%d/root", os.Getpid()) // where that Debian sees our files
	return tracertest.Start(t, tracertest.Source("peers/inside.sh"), root, "python3", "-I",
		ours+program)
}

func TestRead(t *testing.T) {
	tracertest.NeedsRoot(t)
	for name, inDebian13 := range map[string]bool{"system": false, "Debian 13": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := startDescribing(t, inDebian13)
			var all, saved []described
			var objects []uint64
			for _, line := range target.Await("ready") {
				var d described
				if err := json.Unmarshal([]byte(line), &d); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if d.Saved {
					saved = append(saved, d)
					continue
				}
				all, objects = append(all, d), append(objects, d.Object)
			}

			p := tracertest.Must(process.Open(target.PID()))(t)
			defer p.Close()
			got := tracertest.Must(Read(t.Context(), p, objects))(t)
			mustBeAsDescribed(t, got, all)
			mustFindSaved(t, got.Known, all, saved)
			mustFitOneLayout(t, p, objects)
		})
	}
}

// mustBeAsDescribed compares with the program's output about its tensors.
func mustBeAsDescribed(t *testing.T, got *Tensors, all []described) {
	t.Helper()
	var want []string
	skipped := 0
	for _, d := range all {
		if d.Skipped {
			skipped++
			continue
		}
		want = append(want, fmt.Sprint(d.Object, d.DType, d.Shape, d.Device, d.Data, d.Storage,
			d.Bytes, d.HasGradFn))
	}

	var have []string
	for _, k := range got.Known {
		have = append(have, fmt.Sprint(k.Object, k.DType, k.Shape, k.Device, k.Data, k.Storage,
			k.Bytes, k.HasGradFn))
	}

	slices.Sort(want)
	slices.Sort(have)
	for _, w := range want {
		if _, found := slices.BinarySearch(have, w); !found {
			t.Errorf("PyTorch has %s", w)
		}
	}

	for _, h := range have {
		if _, found := slices.BinarySearch(want, h); !found {
			t.Errorf("PyTorch has no %s", h)
		}
	}

	if len(want) < 20000 || skipped < 10 || got.Skipped != skipped || got.Inconsistent != 0 {
		t.Errorf("%d tensors, %d skipped, want %d; %d inconsistent",
			len(want), got.Skipped, skipped, got.Inconsistent)
	}
	groups, _ := Groups(got.Known)
	mustBeGrouped(t, groups, all)
}

// mustFindSaved compares what C++ alone holds, if the memory of all tensors was sampled.
func mustFindSaved(t *testing.T, known []Tensor, all, saved []described) {
	t.Helper()
	before := make(map[SampledTensor]float64)
	want := int64(0)
	for _, d := range slices.Concat(all, saved) {
		if d.Bytes > 0 {
			before[SampledTensor{Address: d.Data, Born: 1}] = 2.5 * float64(d.Bytes)
		}
		if d.Saved {
			want += d.Bytes * 5 / 2
		}
	}

	if want != 500000 {
		t.Errorf("%d bytes are saved", want)
	}

	// An allocation that is there at one of the moments only does not count.
	after := maps.Clone(before)
	before[SampledTensor{Address: 16, Born: 1}] = 1 << 30
	after[SampledTensor{Address: 16, Born: 2}] = 1 << 30
	_, storages := Groups(known)
	if got := InCPPOnly(storages, before, after); got != want {
		t.Errorf("%d bytes in C++ only, want %d", got, want)
	}
}

// mustFitOneLayout checks that no layout is taken for another one.
func mustFitOneLayout(t *testing.T, p *process.Process, objects []uint64) {
	t.Helper()
	maps := tracertest.Must(p.Maps())(t)
	var fits []int
	for _, l := range layouts {
		r := &reader{memory: p, maps: maps, libraries: libraries(maps), layout: l}
		found := tracertest.Must(r.read(objects))(t)
		if fit, _ := fitOf(found); fit > 0 {
			fits = append(fits, fit)
		}
	}

	if !slices.Equal(fits, []int{len(objects)}) {
		t.Errorf("%d of %d tensors fit one of the layouts", fits, len(objects))
	}
}

// mustBeGrouped compares the sums over all groups.
func mustBeGrouped(t *testing.T, groups []census.TensorGroup, all []described) {
	t.Helper()
	var want, got census.TensorGroup
	storages := make(map[uint64]int64)
	for _, d := range all {
		switch {
		case d.Skipped:
			continue
		case d.Bytes > 0:
			storages[d.Data] = d.Bytes
		default:
			storages[d.Storage] = 0
		}
		want.Tensors++
		if d.HasGradFn {
			want.WithGradFn++
		}
	}

	for _, bytes := range storages {
		want.Storages++
		want.Bytes += bytes
	}

	for _, g := range groups {
		got.Storages += g.Storages
		got.Tensors += g.Tensors
		got.WithGradFn += g.WithGradFn
		got.Bytes += g.Bytes
	}

	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// changingTensors replaces tensors all the time, each by one of another size that fills its
// storage.
const changingTensors = `
import gc, random, sys, threading
import torch

torch.set_num_threads(1)
make = lambda: torch.empty(random.randrange(1, 30000), dtype=random.choice([torch.float32, torch.int8, torch.int16]))
kept = [make() for _ in range(2000)]
for tensor in gc.get_objects():
    if isinstance(tensor, torch.Tensor):
        print(id(tensor))

def change():
    while True:
        kept[random.randrange(len(kept))] = make()

threading.Thread(target=change, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
`

// TestReadWhileChanging checks that no tensor gets the storage, dtype or shape of another one that
// took its place.
func TestReadWhileChanging(t *testing.T) {
	tracertest.NeedsRoot(t)
	target := tracertest.Start(t, "/usr/bin/python3", "-c", changingTensors)
	var objects []uint64
	for _, line := range target.Await("ready") {
		object := tracertest.Must(strconv.ParseUint(line, 10, 64))(t)
		objects = append(objects, object)
	}

	p := tracertest.Must(process.Open(target.PID()))(t)
	defer p.Close()

	const least = 8
	known, rounds := 0, 0
	// On a busy machine all may change while they are read.
	for deadline := time.Now().Add(5 * time.Minute); rounds < least ||
		known == 0 && time.Now().Before(deadline); rounds++ {
		got := tracertest.Must(Read(t.Context(), p, objects))(t)
		known += len(got.Known)
		for _, k := range got.Known {
			if k.Bytes != k.extent {
				t.Fatalf("%v in %d bytes", k, k.Bytes)
			}
		}
	}

	if known == 0 {
		t.Error("no tensor is known")
	}
	t.Logf("%d of %d tensors are known", known, rounds*len(objects))
}

func TestHooksAt(t *testing.T) {
	const pointer = 0x55d8c0a412c0
	for _, c := range []struct {
		offset, first uint64
		want          string
	}{
		{24, pointer, "_backward_hooks"},
		{32, pointer, "_post_accumulate_grad_hooks"},
		{16, pointer, ""},
		{40, pointer, ""},
		{24, 0, ""}, // of the TensorImpl, which is owned
		{32, 0, "_backward_hooks"},
		{40, 1, "_post_accumulate_grad_hooks"},
	} {
		if got := HooksAt(c.offset, c.first); got != c.want {
			t.Errorf("at %d, behind %#x: %q, want %q", c.offset, c.first, got, c.want)
		}
	}
}
