package record

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// noNVML is why NVML's count is not known in these tests.
var noNVML = growth.GPUUnknown{Reason: growth.GPUOther, Detail: "no NVML"}

// gpuRecorder is the recorder of a trace of a process that keeps 1 MiB a second in blocks for
// twenty minutes.
func gpuRecorder(t *testing.T) *Recorder {
	t.Helper()
	r := &Recorder{options: Options{Speed: 1, Duration: time.Duration(10 * time.Minute)}}
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
					PID: 7, Used: growth.Unknown, GPUUnknown: noNVML,
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

func TestGPUSummary(t *testing.T) {
	trace, all := gpuRecorder(t).judged()
	if len(all) != 1 || all[0].GPU == nil {
		t.Fatalf("the GPU memory of %d processes is not known", len(all))
	}

	if v := all[0].GPU.Verdict; v.Class != verdict.ClassLeak {
		t.Errorf("%s: %s", v.Class, reasonOf(v))
	}

	d := gpuSummaries(trace, all)[0]
	if d.Process != 7 || d.Diagnosis != string(gpu.DiagnosisTensors) || *d.HeadroomBytes != 10<<30 ||
		d.GPUUnknown != noNVML || d.Suspects[0].Function != "keep" {
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

func TestGPUEnded(t *testing.T) {
	r := gpuRecorder(t)
	r.snapshots.all[60].GPUMemory, r.snapshots.all[60].GPUHoldings = nil,
		nil // the driver had forgotten it by then
	d := gpuSummaries(r.judged())[0]
	var end int64

	for _, row := range d.Breakdown {
		end += row.EndBytes
	}

	if end != 8<<30 || d.GPUUnknown != noNVML {
		t.Errorf("it ends at %d bytes: %+v", end, d.Breakdown)
	}

	r.snapshots.all = r.snapshots.all[:1]
	if d = gpuSummaries(r.judged())[0]; len(d.Breakdown) == 0 ||
		d.Breakdown[0].StartBytes != d.Breakdown[0].EndBytes {
		t.Errorf("of one snapshot: %+v", d.Breakdown)
	}
}

func TestGPUStreak(t *testing.T) {
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

func TestGPUFile(t *testing.T) {
	dir, path := createFolder(t)
	rows := tracertest.Must(openRows(dir))(t)

	write := func(m growth.TreeSample) {
		t.Helper()
		tracertest.NoError(t, rows.write(growth.Row{Sample: growth.Sample{Elapsed: m.Elapsed}}, m))
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

	tracertest.NoError(t, rows.close())

	if got, want := readFile(t, path, folder.GPUsFile), "time_s,gpu,instance,used_bytes,total_bytes\n"+
		"1.000,0,,5,9\n2.000,0,,6,9\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// cacheOf is the memory of a process with one segment, at an address.
func cacheOf(pid int, address uint64) growth.ProcessGPUMemory {
	return growth.ProcessGPUMemory{PID: pid, Cache: &growth.GPUCache{
		Segments: []growth.GPUSegment{{GPU: "0", Address: address, Size: 2 << 20}},
	}}
}

// TestGPUSnapshots checks the names of the files, and the processes that have one.
// export/gpusnapshot tests their content.
func TestGPUSnapshots(t *testing.T) {
	without := growth.ProcessGPUMemory{PID: 8, Cache: &growth.GPUCache{}}
	for name, c := range map[string]struct {
		snapshots [][]growth.ProcessGPUMemory
		want      map[string]string
	}{
		"no cache": {[][]growth.ProcessGPUMemory{{{PID: 7}, without}}, map[string]string{}},
		"one process": {
			[][]growth.ProcessGPUMemory{{cacheOf(7, 1), cacheOf(8, 1)}, {cacheOf(7, 2), without}},
			map[string]string{"gpu_snapshot": "gpu-snapshot.pickle"},
		},
		"two, of which one has ended": {
			[][]growth.ProcessGPUMemory{{cacheOf(7, 1), cacheOf(9, 1)}, {cacheOf(7, 2)}},
			map[string]string{
				"gpu_snapshot_7": "gpu-snapshot-7.pickle",
				"gpu_snapshot_9": "gpu-snapshot-9.pickle",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := createFolder(t)
			e := &Ending{
				recorder: &Recorder{files: &Files{Folder: dir}}, trace: &conclude.Trace{},
			}
			for _, memory := range c.snapshots {
				s := &growth.Snapshot{GPUMemory: memory}
				e.trace.Snapshots = append(e.trace.Snapshots, s)
			}

			if got := e.writeGPUSnapshots(); !maps.Equal(got, c.want) {
				t.Errorf("the summary names %v, want %v", got, c.want)
			}
			if err := e.recorder.files.Err(); err != nil {
				t.Error(err)
			}

			for _, file := range c.want {
				readFile(t, path, file)
			}
			if files, err := dir.GPUSnapshots(); len(files) != len(c.want) || err != nil {
				t.Errorf("the folder has %v, %v", files, err)
			}
		})
	}
}
