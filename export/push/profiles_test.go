package push

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestAddFolder(t *testing.T) {
	cached := heap(stack(11, "shrunk"), -700, 300) // one value shrank, the other did not
	block := growth.Holding{
		Stack: stack(11, "forward"), Kind: growth.KindCudaBlock, InuseObjects: 1, GPUBytes: 5000,
		GPU: "GPU-1",
	}
	lost := growth.Holding{Stack: &growth.Stack{Truncated: "no stack"}, Kind: growth.KindHeap, InuseBytes: 50}
	other := heap(stack(10, "leak"), 24, 0) // in another kind: the same stack
	other.Kind = growth.KindMmap
	tr := newTrace(t, []summary.TreeProcess{
		{PID: 10, Traced: true, Role: growth.RoleTrainer},
		{PID: 11, Traced: true, Role: growth.RoleRank, Rank: new(3), Identity: &summary.Identity{
			Job: "42", RunID: "run", SlurmJob: "42", Rank: new(3), LocalRank: new(1),
			WorldSize: new(8), Node: "n1", Pod: "p", Container: "c",
		}},
		{PID: 12, Role: growth.RoleLauncher},
	},
		heap(stack(10, "leak"), 1000, 4096), other, heap(stack(11, "leak"), 2000, 8192), cached, block,
		lost, heap(stack(11, "gone"), -10, -20), heap(stack(12, "idle"), 0, 0))

	s := newServer(t)
	p := open(t, Options{URL: s.URL, Labels: map[string]string{"team": "vision"}})
	p.addTrace(t, tr)
	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 6) // two processes, three phases

	common := map[string]string{
		"__name__": "memory", "service_name": "allocscope", "team": "vision",
	}
	trainer := map[string]string{"role": "trainer"}
	rank3 := map[string]string{
		"role": "rank", "job_id": "42", "run_id": "run", "slurm_job_id": "42", "rank": "3",
		"local_rank": "1", "world_size": "8", "node": "n1", "pod": "p", "container": "c",
	}
	files := map[string]string{
		PhaseBaseline: folder.WarmupFile, PhaseEnd: folder.PlateauFile, PhaseGrowth: folder.GrowthFile,
	}
	phases := make(map[string]int)
	for _, got := range s.taken {
		pid, want := "10", maps.Clone(common)
		own := trainer
		if got.labels["role"] == "rank" {
			pid, own = "11", rank3
		}
		maps.Copy(want, own)
		want[labelPhase] = got.labels[labelPhase]
		phases[want[labelPhase]]++
		if !maps.Equal(got.labels, want) {
			t.Errorf("labels %v, want %v", got.labels, want)
		}

		checkSums(t, tr, files[want[labelPhase]], pid, got)
		checkPruned(t, got)
		if got.TimeNanos != ends.UnixNano() {
			t.Errorf("time %d, want the end of the trace, %d", got.TimeNanos, ends.UnixNano())
		}
	}

	if !maps.Equal(phases, map[string]int{"baseline": 2, "end": 2, "growth": 2}) {
		t.Errorf("phases: %v", phases)
	}
}

// checkSums compares the sums of a profile with the sums of the positive values in the folder.
func checkSums(t *testing.T, tr trace, file, pid string, got received) {
	t.Helper()
	var all *pprof.Profile
	if err := tr.ReadFile(file, func(r io.Reader) (err error) {
		all, err = pprof.Parse(r)
		return err
	}); err != nil {
		t.Fatal(err)
	}

	want, have := make(map[string]int64), make(map[string]int64)
	for _, s := range all.Sample {
		if owner := strings.Join(s.Label["pid"], ""); owner != pid && (owner != "" || pid != "10") {
			continue
		}
		for i, v := range s.Value {
			if name := all.SampleType[i].Type; slices.Contains(sampleTypes, name) && v > 0 {
				want[name] += v
			}
		}
	}

	for _, s := range got.Sample {
		for i, v := range s.Value {
			have[got.SampleType[i].Type] += v
		}
	}
	if !maps.Equal(have, want) || len(want) == 0 {
		t.Errorf("%s of %s: sums %v, want %v", file, pid, have, want)
	}
}

// checkPruned checks that nothing is sent that Pyroscope does not show.
func checkPruned(t *testing.T, got received) {
	t.Helper()
	for _, s := range got.Sample {
		if len(s.Label)+len(s.NumLabel) > 0 || slices.Min(s.Value) < 0 {
			t.Errorf("sample %v has labels or is negative", s)
		}
	}
	used := make(map[string]bool)
	for _, s := range got.Sample {
		for _, l := range s.Location {
			used[l.Line[0].Function.Name] = true
			if l.Address != 0 {
				t.Errorf("a location has an address: %v", l)
			}
		}
	}
	for _, f := range got.Function {
		if !used[f.Name] || f.Name == "gone" || f.Name == "idle" {
			t.Errorf("function %s is not used", f.Name)
		}
	}
	// pprof keeps the allocator only where there is no other frame.
	if len(got.Comments) > 0 || got.DropFrames != "" || used["malloc"] {
		t.Errorf("comments %q, dropped frames %q, functions %v", got.Comments, got.DropFrames, used)
	}
}

// Pyroscope takes a second profile of equal labels and time for the first one, sent again.
func TestAddFolderEqualLabels(t *testing.T) {
	same := &summary.Identity{Job: "42"}
	tr := newTrace(t, []summary.TreeProcess{
		{PID: 10, Traced: true, Role: growth.RoleTrainer, Identity: same},
		{PID: 11, Traced: true, Role: growth.RoleTrainer, Identity: same},
	}, heap(stack(10, "leak"), 1000, 4096), heap(stack(11, "leak"), 2000, 8192))
	s := newServer(t)
	p := open(t, Options{URL: s.URL})
	p.addTrace(t, tr)
	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 3)
	for _, got := range s.taken {
		// The addresses differ, the stacks do not.
		if len(got.Sample) != 1 || !slices.Equal(got.Sample[0].Value, []int64{12288, 3000}) {
			t.Errorf("samples %v, want one", got.Sample)
		}
	}
}

func TestAddFolderHostileNames(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	tr := newTrace(t, []summary.TreeProcess{{
		PID: 10, Traced: true, Role: growth.Role(long),
		Identity: &summary.Identity{Job: "a\x00\x1b[31m\xff\n", Node: long},
	}}, heap(stack(10, "leak\xff\x00"), 1000, 4096))
	s := newServer(t)
	p := open(t, Options{URL: s.URL})
	if err := p.AddFolder(tr.Folder, tr.summary, map[string]string{"rank": "7"},
		map[string]string{"job_id": "8"}); err != nil {
		t.Fatal(err)
	}
	p.addTrace(t, tr)
	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 6)
	for i, got := range s.taken {
		for name, value := range got.labels {
			if value != growth.Printable(value) || len(value) > maxLabelBytes+len("…") {
				t.Errorf("label %s: %.300q", name, value)
			}
		}
		if more := got.labels["rank"] == "7" && got.labels["job_id"] == "8"; more != (i < 3) {
			t.Errorf("labels of profile %d: %.80v", i, got.labels)
		}
	}
}

// A profile that is too large for Pyroscope keeps its sum, and its largest stacks.
func TestAddFolderLarge(t *testing.T) {
	var held []growth.Holding
	var sum int64
	for i := range 6_000 {
		h := heap(stack(10, fmt.Sprintf("function_%d_%s", i, strings.Repeat("long", 100))),
			int64(1000+i), int64(1000+i))
		held, sum = append(held, h), sum+h.InuseBytes
	}
	s := newServer(t)
	p := open(t, Options{URL: s.URL})
	p.addTrace(t, newTrace(t, nil, held...))
	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 3)
	for _, got := range s.taken {
		var have int64
		var rest bool
		for _, sample := range got.Sample {
			have += sample.Value[1]
			rest = rest || sample.Location[0].Line[0].Function.Name == smallerStacks
		}
		var size counter
		tracertest.NoError(t, got.WriteUncompressed(&size))
		largest := got.Sample[0].Location[0].Line[0].Function.Name
		if have != sum || !rest || size > maxProfileBytes ||
			!strings.HasPrefix(largest, "function_5999") {
			t.Errorf("%d bytes in %d samples, want %d; %d bytes large, largest %.20s", have,
				len(got.Sample), sum, size, largest)
		}
	}
}

type counter int

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}
