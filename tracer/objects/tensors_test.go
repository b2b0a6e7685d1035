package objects_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestTensors compares the tensors of a trainer with those that its garbage collector knows.
func TestTensors(t *testing.T) {
	for _, p := range pythons(t) {
		if !slices.Contains(p.packages, "torch") {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			// Else PyTorch takes testdata/cuda.py for CUDA's bindings.
			environment := []string{"PYTHONSAFEPATH=1"}
			command := p.run(t, environment, "trained_tensors.py")
			target := tracertest.StartCommand(t, command)
			target.Await("ready")
			heap := tracertest.Must(objects.Open(openProcess(t, target.PID())))(t)
			defer heap.Close()

			for _, steps := range []int{20, 200} {
				target.Say(fmt.Sprint("train ", steps))
				target.Await("done")
				target.Say("tensors")
				want := target.Await("done")
				for _, share := range []float64{1, 0.3} { // all of the tensors, also by a share
					counted, err := heap.Census(t.Context(), objects.CensusOptions{Share: share})
					tracertest.NoError(t, err)
					mustBeTensors(t, counted, want)
				}
			}
		})
	}
}

// mustBeTensors compares with the program's output.
func mustBeTensors(t *testing.T, counted *objects.Census, printed []string) {
	t.Helper()
	var got []string
	onCPU := 0
	for _, g := range counted.Tensors.Groups {
		got = append(got, describeGroup(g))
		onCPU += g.Storages
	}
	want := slices.Sorted(slices.Values(printed))
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) < 9 {
		t.Errorf("tensors:\n%s\nthe program has\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
	if counted.Tensors.Unknown != "" || counted.Tensors.InCPPOnly != -1 || len(counted.Storages) != onCPU {
		t.Errorf("%q, %d bytes in C++ only, %d of %d storages", counted.Tensors.Unknown,
			counted.Tensors.InCPPOnly, len(counted.Storages), onCPU)
	}
}

func describeGroup(g census.TensorGroup) string {
	shape := strings.ReplaceAll(fmt.Sprint(g.Shape), " ", ",")
	return fmt.Sprint(g.DType, " ", shape, " ", g.Device, " ", g.Storages, " ", g.Tensors, " ", g.Bytes,
		" ", g.WithGradFn)
}

// A process without PyTorch has no tensors, and that is known.
func TestTensorsWithoutTorch(t *testing.T) {
	target := tracertest.Start(t, "/usr/bin/python3", tracertest.Source("kept_records.py"))
	target.Await("ready")
	heap := tracertest.Must(objects.Open(openProcess(t, target.PID())))(t)
	defer heap.Close()
	counted := tracertest.Must(heap.Census(t.Context(), objects.CensusOptions{}))(t)
	if got := counted.Tensors; got.Unknown != census.NoTorch || got.InCPPOnly != -1 || got.Groups != nil {
		t.Errorf("%+v", got)
	}
}
