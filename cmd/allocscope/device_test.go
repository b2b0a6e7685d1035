package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// deviceSummary is a trainer that keeps tensors, traced without NVML.
func deviceSummary() *summary.Summary {
	pace := int64(5 << 20)
	share := 0.98
	block := summary.Accumulation{Function: "keep", Kind: growth.KindCudaBlock, Objects: 40, Bytes: 50 << 20, BytesPerMin: &pace, Share: 1, Trend: growth.TrendAccumulating, Stack: []string{"keep (/job/train.py:9)"}}
	return &summary.Summary{Process: summary.Process{PID: 42, Command: "python3"}, GPUMemory: []summary.GPUMemory{{
		Process: 42, Verdict: summary.Verdict{Class: growth.ClassLeak, Why: "steady growth"}, Judged: summary.GPUAllocated, BaselineS: 60,
		Diagnosis: "retained-tensors", Advice: "tensors are kept", Reason: "libnvidia-ml.so.1 is not there",
		Breakdown: []summary.GPUBreakdownRow{
			{Kind: growth.KindCudaBlock, GPU: "0", Function: "keep", StartBytes: 100 << 20, EndBytes: 150 << 20}, {Kind: growth.KindCudaCached, StartBytes: 80 << 20, EndBytes: 30 << 20},
		},
		Suspects:     []summary.Suspect{{Component: "train.py", Function: "keep (/job/train.py:9)", BytesPerMin: pace, Share: &share, Explains: 1, Stacks: 1}},
		Accumulating: []summary.Accumulation{block},
	}}}
}

func TestDeviceMemoryHasASectionOfItsOwn(t *testing.T) {
	var out bytes.Buffer
	if err := printResult(&out, deviceSummary(), "folder"); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(spokenLines(out.String()), "\n")
	mustSay(t, "the result", text,
		"Device memory (PID 42):\n\nLEAK: grows by an unknown rate, steady growth (allocated by torch, between steps)\n",
		"tensors are kept\n",
		"Where device memory is, since 60.0 s:\n\nat the boundary at the end growth what\n100 MiB 150 MiB +50.0 MiB torch's blocks\n80.0 MiB 30.0 MiB -50.0 MiB cached by torch, in no block\n180 MiB 180 MiB 0 B all that is known\n",
		"MiB/min of the growth stacks whose\n5.00 98 % 1 train.py: keep (train.py:9)\n",
		"What holds more on the GPU than at the boundary:\n\nMiB/min share bytes objects trend where\n5.00 100 % 50.0 MiB 40 accumulating [cuda_block] keep (train.py:9)\n",
	)
	if n := strings.Count(text, "libnvidia-ml.so.1 is not there"); n != 1 {
		t.Errorf("the reason is told %d times:\n%s", n, text)
	}
}

func TestAProcessWithoutAGPUHasNoWordOnDeviceMemory(t *testing.T) {
	var out bytes.Buffer
	if err := printResult(&out, &summary.Summary{Process: summary.Process{PID: 42}}, "folder"); err != nil || strings.Contains(strings.ToLower(out.String()), "device") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestALeakOfDeviceMemoryFailsATraceOfWhichTheRSSDoesNotGrow(t *testing.T) {
	device := judgedDevice{&growth.Track{Member: growth.Member{Process: growth.Process{PID: 7}}}, growth.DeviceJudgement{Verdict: growth.Verdict{Class: growth.ClassLeak}}}
	second := device
	second.Class = growth.ClassSuspected
	on := failOnValue("leak")
	var wanted *finding
	err := on.check(outcomesOf(growth.ClassPlateau, []judgedDevice{second, device})...)
	if !errors.As(err, &wanted) {
		t.Fatal(err)
	}
	mustSay(t, "the error", err.Error(), "the verdict on the device memory of PID 7 is leak (--fail-on leak)")
	if err := on.check(outcomesOf(growth.ClassLeak, []judgedDevice{device})...); err == nil || !strings.HasPrefix(err.Error(), "the verdict is leak") {
		t.Errorf("of two as bad, that on RSS: %v", err)
	}
	if err := on.check(outcomesOf(growth.ClassPlateau, []judgedDevice{second})...); err != nil {
		t.Error(err)
	}
	if err := on.check(outcomesOf(growth.ClassGrowing, nil)...); err != nil {
		t.Error(err)
	}
}

// deviceRecorder is what a trace has of a process that keeps 1 MiB a second in blocks for twenty minutes.
func deviceRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{flags: traceFlags{pace: 1, duration: durationValue(10 * time.Minute)}}
	member := growth.Member{Process: growth.Process{PID: 7, Born: -3 * time.Hour, Command: "python3", Role: growth.RoleTrainer}, Traced: true}
	for second := range 1201 {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS, s.CudaReserved, s.CudaAllocated = time.Duration(second)*time.Second, 1<<30, 8<<30, 4<<30+int64(second)<<20
		r.history.Add(growth.Moment{
			Elapsed: s.Elapsed, Members: []growth.Member{member}, Processes: []growth.ProcessSample{{PID: 7, Sample: s}},
			GPUs: []growth.GPUSample{{Instance: -1, Used: 60 << 30, Total: 80 << 30}, {Index: 1, Instance: -1, Used: 70 << 30, Total: 80 << 30, Users: []int{7}}},
		})
		if second%20 == 0 {
			at := &growth.Snapshot{
				Elapsed: s.Elapsed, Alive: []int{7}, Devices: []growth.Device{{PID: 7, Used: growth.Unknown, Reason: "no NVML", Allocated: s.CudaAllocated, Reserved: s.CudaReserved, BlocksWatched: true}},
				DeviceHoldings: []growth.Holding{{Stack: growth.NamedStack(7, "", "keep"), Kind: growth.KindCudaBlock, GPU: "0", InuseBytes: int64(second) << 20, InuseObjects: float64(second)}},
			}
			growth.FillDevices(at)
			r.snapshots = append(r.snapshots, numbered{Snapshot: at, file: len(r.snapshots)})
		}
	}
	return r
}

func TestATraceTellsWhoKeepsDeviceMemory(t *testing.T) {
	r := deviceRecorder(t)
	judged := r.judgeDevices(r.judge())
	if len(judged) != 1 {
		t.Fatalf("%d processes have device memory", len(judged))
	}
	if judged[0].Class != growth.ClassLeak {
		t.Errorf("%s: %s", judged[0].Class, judged[0].Why)
	}
	d := r.devices(judged)[0]
	if d.Process != 7 || d.Diagnosis != string(growth.DiagnosisTensors) || *d.HeadroomBytes != 10<<30 || d.Reason != "no NVML" || d.Suspects[0].Function != "keep" {
		t.Errorf("%+v", d)
	}
	var start, end int64
	for _, row := range d.Breakdown {
		start, end = start+row.StartBytes, end+row.EndBytes
	}
	if start != 8<<30 || end != 8<<30 {
		t.Errorf("the ledger sums to %d and %d", start, end)
	}
	if grown := grownOnDevices(span{r.snapshots[3].Snapshot, r.snapshots[60].Snapshot}, judged); len(grown) != 2 || grown[0].InuseBytes != 1140<<20 || grown[0].Trend != growth.TrendAccumulating {
		t.Errorf("%+v", grown)
	}
	mustSay(t, "the comments", strings.Join(deviceComments(judged), "\n"), "device memory of PID 7: LEAK: grows by 60", "retained-tensors")
}

func TestTheLedgerOfAProcessThatHasEndedIsThatOfTheLastMomentOfItsLife(t *testing.T) {
	r := deviceRecorder(t)
	r.snapshots[60].Devices, r.snapshots[60].DeviceHoldings = nil, nil // the driver had forgotten it by then
	d := r.devices(r.judgeDevices(r.judge()))[0]
	var end int64
	for _, row := range d.Breakdown {
		end += row.EndBytes
	}
	if end != 8<<30 || d.Reason != "no NVML" {
		t.Errorf("it ends at %d bytes: %+v", end, d.Breakdown)
	}
	r.snapshots = r.snapshots[:1]
	if d = r.devices(r.judgeDevices(r.judge()))[0]; len(d.Breakdown) == 0 || d.Breakdown[0].StartBytes != d.Breakdown[0].EndBytes {
		t.Errorf("of one snapshot: %+v", d.Breakdown)
	}
}

func TestALeakOfDeviceMemoryNeedsSeveralLooksWhereATraceHasNoEnd(t *testing.T) {
	r := deviceRecorder(t)
	r.deviceLooks = growth.NewLooks(growth.InSeconds())
	judged := r.judgeDevices(r.judge())
	r.settleDevices(judged)
	if judged[0].Class != growth.ClassSuspected || !strings.Contains(judged[0].Why, "1 of 3 looks") {
		t.Errorf("after one look: %s, %s", judged[0].Class, judged[0].Why)
	}
	all := r.judge()
	r.lookAtDevices(all)
	judged = r.judgeDevices(all)
	r.settleDevices(judged)
	if judged[0].Class != growth.ClassLeak {
		t.Errorf("after three: %s, %s", judged[0].Class, judged[0].Why)
	}
}

func TestAFileOfGPUsIsWrittenOnlyWhereThereAreSome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	dir, err := folder.Create(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	all, err := openRows(dir)
	if err != nil {
		t.Fatal(err)
	}
	write := func(m growth.Moment) {
		t.Helper()
		if err := all.write(growth.Row{Sample: growth.Sample{Elapsed: m.Elapsed}}, m); err != nil {
			t.Fatal(err)
		}
	}
	write(growth.Moment{})
	if exists(filepath.Join(path, folder.GPUsFile)) {
		t.Fatal("there is a file of no GPU")
	}
	write(growth.Moment{Elapsed: time.Second, GPUs: []growth.GPUSample{{Instance: -1, Used: 5, Total: 9}}})
	write(growth.Moment{Elapsed: 2 * time.Second, GPUs: []growth.GPUSample{{Instance: -1, Used: 6, Total: 9}}})
	if err := all.close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(path, folder.GPUsFile))
	if err != nil || string(text) != "time_s,gpu,instance,used_bytes,total_bytes\n1.000,0,,5,9\n2.000,0,,6,9\n" {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestVerdictJudgesAColumnOfDeviceMemoryWhereItIsNamed(t *testing.T) {
	var text bytes.Buffer
	w, err := rows.NewTimelineWriter(&text)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range deviceRecorder(t).history.Rows {
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "timeline.csv")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	c := call(t, "verdict", path)
	c.mustEnd(0)
	mustSay(t, "by default", c.stdout.String(), "NO LEAK")
	c = call(t, "verdict", path, "--y", "cuda_allocated_bytes", "--age", "3h")
	c.mustEnd(0)
	mustSay(t, "of blocks", c.stdout.String(), "LEAK: grows by 60")
}
