package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestGPUMemory(t *testing.T) {
	t.Run("result", testGPUResult)
	t.Run("no GPU", testNoGPUResult)
	t.Run("fail on", testGPUFailOn)
	t.Run("summary", testGPUSummary)
	t.Run("ended process", testGPUEnded)
	t.Run("streak", testGPUStreak)
	t.Run("gpus.csv", testGPUFile)
}

// gpuSummary is a trainer that keeps tensors, traced without NVML.
func gpuSummary() *summary.Summary {
	perMin := int64(5 << 20)
	share := 0.98
	block := summary.Accumulation{
		Function: "keep", Kind: growth.KindCudaBlock, Objects: 40,
		Bytes: 50 << 20, BytesPerMin: &perMin, Share: 1, Trend: growth.TrendAccumulating,
		Stack: []string{"keep (/job/train.py:9)"},
	}

	return &summary.Summary{
		Process: summary.Process{PID: 42, Command: "python3"},
		GPUMemory: []summary.GPUMemory{{
			Process: 42, Verdict: summary.Verdict{Class: verdict.ClassLeak, WhyCode: "steady growth"},
			Judged: summary.GPUAllocated, BaselineS: 60,
			Diagnosis: "retained-tensors",
			Reason:    "libnvidia-ml.so.1 is not there",
			Breakdown: []summary.GPUBreakdownRow{
				{Kind: growth.KindCudaBlock, GPU: "0", StartBytes: 100 << 20, EndBytes: 150 << 20},
				{Kind: growth.KindCudaCached, StartBytes: 80 << 20, EndBytes: 30 << 20},
			},
			Suspects: []summary.Suspect{{
				Component: "train.py", Function: "keep (/job/train.py:9)",
				BytesPerMin: perMin, Share: &share, Explains: 1, Stacks: 1,
			}},
			Accumulating: []summary.Accumulation{block},
		}},
	}
}

func testGPUResult(t *testing.T) {
	var out bytes.Buffer
	if err := PrintDetails(&out, gpuSummary(), "folder"); err != nil {
		t.Fatal(err)
	}

	text := strings.Join(singleSpaced(out.String()), "\n")
	mustSay(t, "the result", text,
		"GPU memory (PID 42):\n\n"+
			strings.Join(strings.Fields(words.GPULines(gpuSummary().GPUMemory[0])[0]), " ")+"\n",
		"tensors are kept, most by train.py: keep",
		"What GPU memory is made of, since 60.0 s:\n\nat the baseline at the end growth what\n100 MiB 150 MiB +50.0 MiB ", "\n80.0 MiB 30.0 MiB -50.0 MiB ", "\n180 MiB 180 MiB 0 B ",
		"MiB/min of the growth stacks component: call site\n5.00 98% 1 train.py: keep (train.py:9)\n",
		"Stacks that grew on the GPU since the baseline:\n\nMiB/min share bytes objects trend where\n5.00 100% 50.0 MiB 40 accumulating "+words.Where(gpuSummary().GPUMemory[0].Accumulating[0])+"\n",
	)

	if n := strings.Count(text, "libnvidia-ml.so.1 is not there"); n != 1 {
		t.Errorf("the reason is given %d times:\n%s", n, text)
	}
}

func testNoGPUResult(t *testing.T) {
	var out bytes.Buffer
	if err := PrintDetails(&out, &summary.Summary{Process: summary.Process{PID: 42}},
		"folder"); err != nil || strings.Contains(strings.ToLower(out.String()), "gpu memory") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func testGPUFailOn(t *testing.T) {
	onGPU := func(class verdict.Class) conclude.Process {
		return conclude.Process{
			History: &growth.ProcessHistory{Member: growth.Member{Process: growth.Process{PID: 7}}},
			GPU:     &gpu.Judgement{Verdict: verdict.Verdict{Class: class}},
		}
	}
	outcomes := func(rss verdict.Class, all ...conclude.Process) []flagvalue.Outcome {
		result := conclude.Result{All: all}
		result.Main.Class = rss
		return outcomesOf(&result)
	}
	leak, suspected := onGPU(verdict.ClassLeak), onGPU(verdict.ClassSuspected)

	on := flagvalue.FailOn("leak")
	err := on.Check(outcomes(verdict.ClassPlateau, suspected, leak)...)
	if exit.StatusOf(err) != exit.Found {
		t.Fatal(err)
	}

	mustSay(t, "the error", err.Error(),
		"the verdict on the GPU memory of PID 7 is leak (--fail-on leak)")
	if err := on.Check(outcomes(verdict.ClassLeak, leak)...); err == nil ||
		!strings.HasPrefix(err.Error(), "the verdict is leak") {
		t.Errorf("of two as bad, that on RSS: %v", err)
	}

	err = on.Check(outcomes(verdict.ClassPlateau, suspected)...)
	if exit.StatusOf(err) != exit.Inconclusive {
		t.Errorf("a leak that is only suspected: %v", err)
	}
	err = on.Check(outcomes(verdict.ClassGrowing)...)
	if exit.StatusOf(err) != exit.Inconclusive {
		t.Errorf("growth that may be warm-up: %v", err)
	}
}

// gpuRecorder is the recorder of a trace of a process that keeps 1 MiB a second in blocks for
// twenty minutes.
func gpuRecorder(t *testing.T) *Recorder {
	t.Helper()
	r := &Recorder{options: Options{Speed: 1, Duration: flagvalue.Duration(10 * time.Minute)}}
	member := growth.Member{Process: growth.Process{
		PID: 7, Born: -3 * time.Hour,
		Command: "python3", Role: growth.RoleTrainer,
	}, Traced: true}

	for second := range 1201 {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS, s.CudaReserved, s.CudaAllocated = time.Duration(second)*time.Second,
			1<<30, 8<<30, 4<<30+int64(second)<<20
		r.history.Add(growth.TreeSample{
			Elapsed: s.Elapsed, Members: []growth.Member{member},
			Processes: []growth.ProcessSample{{PID: 7, Sample: s}},
			GPUs: []growth.GPUSample{
				{Instance: -1, Used: 60 << 30, Total: 80 << 30},
				{Index: 1, Instance: -1, Used: 70 << 30, Total: 80 << 30, Users: []int{7}},
			},
		})

		if second%20 == 0 {
			at := &growth.Snapshot{
				Elapsed: s.Elapsed, Alive: []int{7},
				GPUMemory: []growth.ProcessGPUMemory{{
					PID: 7, Used: growth.Unknown, Reason: "no NVML",
					Allocated: s.CudaAllocated, Reserved: s.CudaReserved, BlocksProbed: true,
				}},
				GPUHoldings: []growth.Holding{{
					Stack: growth.NamedStack(7, "", "keep"),
					Kind:  growth.KindCudaBlock, GPU: "0", InuseBytes: int64(second) << 20,
					InuseObjects: float64(second),
				}},
			}

			gpu.Attribute(at)
			r.snapshots.all = append(r.snapshots.all, numberedSnapshot{
				Snapshot: at,
				file:     len(r.snapshots.all),
			})
		}
	}

	return r
}

// judged judges all processes, with their GPU memory.
func (r *Recorder) judged() (*conclude.Trace, []conclude.Process) {
	t := r.Recorded()
	all := t.Judge()
	for i := range all {
		t.JudgeGPU(&all[i])
	}
	return t, all
}

func testGPUSummary(t *testing.T) {
	trace, all := gpuRecorder(t).judged()
	if len(all) != 1 || all[0].GPU == nil {
		t.Fatalf("the GPU memory of %d processes is not known", len(all))
	}

	if v := all[0].GPU.Verdict; v.Class != verdict.ClassLeak {
		t.Errorf("%s: %s", v.Class, reasonOf(v))
	}

	d := gpuSummaries(trace, all)[0]
	if d.Process != 7 || d.Diagnosis != string(gpu.DiagnosisTensors) || *d.HeadroomBytes != 10<<30 ||
		d.Reason != "no NVML" || d.Suspects[0].Function != "keep" {
		t.Errorf("%+v", d)
	}

	var start, end int64
	for _, row := range d.Breakdown {
		start, end = start+row.StartBytes, end+row.EndBytes
	}

	if start != 8<<30 || end != 8<<30 {
		t.Errorf("the breakdown sums to %d and %d", start, end)
	}

	all[0].Window.From = time.Minute
	result := trace.Conclude(all)
	if grown := result.GrownOnGPUs; len(grown) != 2 || grown[0].InuseBytes != 1140<<20 ||
		grown[0].Trend != growth.TrendAccumulating {
		t.Errorf("%+v", grown)
	}

	mustSay(t, "the comments", strings.Join(gpuComments(all), "\n"),
		"GPU memory of PID 7: LEAK: +60", "retained-tensors")
}

func testGPUEnded(t *testing.T) {
	r := gpuRecorder(t)
	r.snapshots.all[60].GPUMemory, r.snapshots.all[60].GPUHoldings = nil,
		nil // the driver had forgotten it by then
	d := gpuSummaries(r.judged())[0]
	var end int64

	for _, row := range d.Breakdown {
		end += row.EndBytes
	}

	if end != 8<<30 || d.Reason != "no NVML" {
		t.Errorf("it ends at %d bytes: %+v", end, d.Breakdown)
	}

	r.snapshots.all = r.snapshots.all[:1]
	if d = gpuSummaries(r.judged())[0]; len(d.Breakdown) == 0 ||
		d.Breakdown[0].StartBytes != d.Breakdown[0].EndBytes {
		t.Errorf("of one snapshot: %+v", d.Breakdown)
	}
}

func testGPUStreak(t *testing.T) {
	r := gpuRecorder(t)
	r.checks.rss = verdict.NewRechecks(verdict.InSeconds())
	r.checks.gpu = verdict.NewRechecks(verdict.InSeconds())
	_, all := r.judged()
	r.decide(all)
	if v := all[0].GPU.Verdict; v.Class != verdict.ClassSuspected ||
		!strings.Contains(reasonOf(v), "1 of 3 checks") {
		t.Errorf("after one check: %s, %s", v.Class, reasonOf(v))
	}

	_, all = r.judged()
	r.checks.addGPU(all)
	r.decide(all)
	if v := all[0].GPU.Verdict; v.Class != verdict.ClassLeak {
		t.Errorf("after three: %s, %s", v.Class, reasonOf(v))
	}
}

func testGPUFile(t *testing.T) {
	dir, path := createFolder(t)
	rows, err := openRows(dir)
	if err != nil {
		t.Fatal(err)
	}

	write := func(m growth.TreeSample) {
		t.Helper()
		if err := rows.write(growth.Row{Sample: growth.Sample{Elapsed: m.Elapsed}}, m); err != nil {
			t.Fatal(err)
		}
	}

	write(growth.TreeSample{})
	if _, err := os.Stat(filepath.Join(path, folder.GPUsFile)); err == nil {
		t.Fatal("there is a file of no GPU")
	}

	for second := range int64(2) {
		gpu := growth.GPUSample{Instance: -1, Used: 5 + second, Total: 9}
		write(growth.TreeSample{
			Elapsed: time.Duration(1+second) * time.Second, GPUs: []growth.GPUSample{gpu},
		})
	}

	if err := rows.close(); err != nil {
		t.Fatal(err)
	}

	if got, want := readFile(t, path, folder.GPUsFile), "time_s,gpu,instance,used_bytes,total_bytes\n"+
		"1.000,0,,5,9\n2.000,0,,6,9\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
