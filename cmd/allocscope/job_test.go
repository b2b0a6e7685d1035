package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Jobs live faster than real trainers, and the criteria of the judgement are scaled: the answers
// that users come for, by the whole program. Packages verdict, judge, diagnosis and conclude prove
// all verdicts and causes, and package claim which of them hold after a loss. Short traces are not
// parallel: they may have too few samples beside others.
func TestJob(t *testing.T) {
	t.Run("fragmentation", testFragmentation)
	t.Run("lost allocations", testLostAllocations)
	t.Run("plateau after warm-up", testPlateau)
	t.Run("leak under a warm-up, below a wrapper", testWrapper)
	t.Run("leak of tensors", testTensorLeak)
}

const (
	minute    = time.Second // of a job at jobSpeed
	jobSpeed  = 60
	longTrace = 40 * minute
)

// fastTrace returns the options of a trace of a process that lives faster than others.
func fastTrace(t *testing.T, pid int, duration time.Duration) trace.Options {
	t.Helper()
	return trace.Options{
		PID: pid, Duration: flagvalue.Duration(duration), Interval: 64 << 10, MaxLive: 1 << 16,
		Native: trace.NativeOutside, Sources: source.Names(), Output: newFolder(t),
		Keepers: trace.KeepersOff, Speed: jobSpeed,
	}
}

// verdictOn is the result that a trace has written about a job.
type verdictOn struct {
	summary.Summary
	folder, stdout string
}

// judged traces to the end. The error comes from the command; the files exist in any case.
func judged(t *testing.T, options trace.Options) (verdictOn, error) {
	t.Helper()
	tracertest.NeedsRoot(t)

	options.Details = true
	var stdout, stderr bytes.Buffer
	err := trace.Run(t.Context(), options,
		traceEnvironment(t.Context(), console.New(&stderr), &stdout))
	t.Logf("%v\n%s\n%s", err, stderr.String(), stdout.String())

	for _, name := range []string{folder.GrowthFile, folder.WarmupFile, folder.PlateauFile} {
		readProfile(t, options.Output, name)
	}
	return verdictOn{readSummary(t, options.Output), options.Output, stdout.String()}, err
}

func judgeUntilEnd(t *testing.T, options trace.Options) verdictOn {
	t.Helper()
	v := tracertest.Must(judged(t, options))(t)
	return v
}

// undisturbed repeats a trace whose result is not as it should be, where a busy machine has kept
// allocscope from sampling: a second of the machine is a minute of a job. A trace with its usual
// samples is not repeated, however wrong its result is.
func undisturbed(
	t *testing.T, trace func() verdictOn, isRight func(verdictOn) bool,
) (v verdictOn) {
	t.Helper()
	for range 3 {
		if v = trace(); isRight(v) || !wasDisturbed(t, v) {
			break
		}
	}
	return v
}

// wasDisturbed reports whether a fast trace has less than half of its samples, or a pause in them.
func wasDisturbed(t *testing.T, v verdictOn) bool {
	t.Helper()
	const usual, pause = 100 * time.Millisecond, time.Second
	timeline := readTimeline(t, v.folder)
	if len(timeline) < int(v.DurationS/usual.Seconds())/2 {
		return true
	}
	for i, row := range timeline[1:] {
		if row.Elapsed-timeline[i].Elapsed > pause {
			return true
		}
	}
	return false
}

// is returns whether a trace has a class.
func is(class verdict.Class) func(verdictOn) bool {
	return func(v verdictOn) bool { return v.Class == class }
}

// startJob runs testdata/job.py with settings of its memory.
func startJob(t *testing.T, settings ...string) *tracertest.Target {
	t.Helper()
	arguments := append([]string{tracertest.Source("job.py")}, settings...)
	job := tracertest.Start(t, "/usr/bin/python3", arguments...)
	t.Cleanup(job.Hangup)
	return ready(job)
}

// startWith starts a waiting job when its trace has taken the first snapshot. The caller ends the
// waiting.
func startWith(t *testing.T, job *tracertest.Target, options trace.Options) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup

	waiting.Go(func() {
		first := filepath.Join(options.Output, folder.SnapshotFile(0))
		for !exists(first) && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond)
		}
		job.Say("begin")
	})

	return func() {
		cancel()
		waiting.Wait()
	}
}

func (v verdictOn) mustBe(t *testing.T, class verdict.Class) {
	t.Helper()
	if v.Class != class {
		t.Errorf("the verdict is %s (%s), want %s", v.Class, words.Reason(v.Verdict), class)
	}
}

// mustSuspect checks that the first suspect is the leaking line of a program.
func mustSuspect(t *testing.T, suspects []summary.Suspect, program string) {
	t.Helper()
	line := fmt.Sprintf("remember (%s/%s", filepath.Dir(tracertest.Source(program)),
		leakLine(t, program))
	if len(suspects) == 0 || !slices.Contains(append(suspects[0].Callers, suspects[0].Path...),
		line) {
		t.Errorf("suspects %+v, want %s", suspects, line)
	}
}

const (
	warmUp  = "warmup=8"
	filling = "fill=200"
	steps   = "steps=5"
	leak    = "leak=1024" // KiB a step: 5 MiB a minute of the job's life
)

// shortTrace is too short to call growth a leak, however steady.
const shortTrace = 270 * minute / 60

// startCause runs testdata/causes.c, which grows by 25 MiB a second.
func startCause(t *testing.T, cause string) *tracertest.Target {
	t.Helper()
	target := tracertest.Start(t, tracertest.Build(t, "causes.c"), cause, "40000")
	t.Cleanup(target.Hangup)
	return ready(target)
}

// longEnough is a short trace of a cause. A busy machine may take too few samples for a judgement:
// then it is traced again.
func longEnough(t *testing.T, cause string, set func(*trace.Options)) (v verdictOn) {
	t.Helper()
	for range 3 {
		options := fastTrace(t, startCause(t, cause).PID(), shortTrace)
		set(&options)
		if v = judgeUntilEnd(t, options); v.Class != verdict.ClassTooShort {
			break
		}
	}
	return v
}

// The cause has nine tenths of the growth, and all parts sum to it.
func testFragmentation(t *testing.T) {
	v := longEnough(t, "fragment", func(*trace.Options) {})
	v.mustBe(t, verdict.ClassGrowing)
	mustSay(t, "the result", v.stdout, "FRAGMENTATION   ", "fragmentation: ",
		"is freed memory that malloc keeps (high confidence)", "malloc_trim")

	var sum int64
	for _, d := range v.Diagnoses {
		if d.Process == v.Process.PID {
			sum += d.Bytes
		}
	}
	if len(v.Diagnoses) == 0 || v.Diagnoses[0].Cause != diagnosis.Fragmentation ||
		v.Diagnoses[0].Share < 0.9 || v.Diagnoses[0].Confidence != diagnosis.High {
		t.Errorf("diagnoses %+v, want fragmentation", v.Diagnoses)
	}
	if grown := *v.RSS.EndBytes - *v.RSS.BaselineBytes; sum != grown {
		t.Errorf("the parts sum to %d bytes, the RSS grew by %d", sum, grown)
	}
}

// The live map is full at once, so that objects that are kept look like free memory.
func testLostAllocations(t *testing.T) {
	v := longEnough(t, "keep", func(o *trace.Options) { o.Interval, o.MaxLive = 1, 16 })
	v.mustBe(t, verdict.ClassGrowing)
	mustSay(t, "the result", v.stdout, "GROWING (warm-up or leak?)   ", "what is free is not known: ",
		" allocations not tracked, ", " (raise --max-live)", "heap, unclassified", ", incomplete")
	for _, claim := range []string{
		"FRAGMENTATION", "no leak of objects", "every malloc and free", "high confidence", "free but resident",
	} {
		if strings.Contains(v.stdout, claim) {
			t.Errorf("the result claims %q", claim)
		}
	}
}

func testPlateau(t *testing.T) {
	t.Parallel()
	v := undisturbed(t, func() verdictOn {
		job := startJob(t, warmUp, filling, "wait=1", steps)
		options := fastTrace(t, job.PID(), longTrace)
		options.FailOn = "suspected"
		defer startWith(t, job, options)()
		return judgeUntilEnd(t, options)
	}, is(verdict.ClassPlateau))

	v.mustBe(t, verdict.ClassPlateau)
	if v.Bound == nil || *v.Bound*minute.Minutes() > 1<<20 {
		t.Errorf("bound %v, want less than 1 MiB a minute", v.Bound)
	}
}

// The job leaks below a shell that waits for it, and has four stable workers.
func testWrapper(t *testing.T) {
	t.Parallel()
	script := strings.Join([]string{
		"/usr/bin/python3", tracertest.Source("job.py"), "wait=1", "workers=4", warmUp, filling, steps,
		leak, "; :",
	}, " ")

	var err error
	var asked int
	v := undisturbed(t, func() (v verdictOn) {
		wrapper := tracertest.Start(t, "/bin/sh", "-c", script)
		t.Cleanup(wrapper.Hangup)
		asked = ready(wrapper).PID()

		options := fastTrace(t, asked, longTrace)
		options.FailOn = "leak"
		options.UntilSettled = flagvalue.Duration(4 * longTrace) // a busy machine may stop the job
		defer startWith(t, wrapper, options)()
		v, err = judged(t, options)
		return v
	}, is(verdict.ClassLeak))
	if exit.StatusOf(err) != exit.Found {
		t.Errorf("--fail-on leak: %v", err)
	}
	if v.Asked != asked || !strings.Contains(v.Process.Command, "job.py") {
		t.Errorf("traced %+v, asked for %d, want the child of %d", v.Process, v.Asked, asked)
	}
	if len(v.Groups) != 1 || v.Groups[0].Role != growth.RoleWorker ||
		v.Groups[0].Processes != 4 ||
		v.Groups[0].Verdict != verdict.ClassPlateau {
		t.Errorf("groups %+v, want four stable workers", v.Groups)
	}

	v.mustBe(t, verdict.ClassLeak)
	mustSuspect(t, v.Suspects, "job.py")

	rate := 0.0
	if v.Rate != nil {
		rate = *v.Rate * minute.Minutes()
	}

	const mib = 1 << 20
	if rate < 4.5*mib || rate > 5.5*mib || v.ToLimit == nil {
		t.Errorf("rate %.3g bytes a minute, want 5 MiB within a tenth; limit in %v s", rate,
			v.ToLimit)
	}

	accumulates := func(s *profile.Sample) bool {
		return slices.Contains(s.Label["trend"], string(growth.TrendAccumulating))
	}

	if !slices.ContainsFunc(readProfile(t, v.folder, folder.GrowthFile).Sample, accumulates) {
		t.Error("no sample of growth.pb.gz is labelled as accumulating")
	}
}

func testTensorLeak(t *testing.T) {
	t.Parallel()
	library := tracertest.BuildCachingAllocator(t)
	var pid int
	v := undisturbed(t, func() verdictOn {
		job := ready(tracertest.Start(t, "/usr/bin/python3", tracertest.Source("gpu_job.py"),
			library, "wait=1", "leak=256"))
		t.Cleanup(job.Hangup)
		pid = job.PID()
		options := fastTrace(t, pid, longTrace)
		defer startWith(t, job, options)()
		return judgeUntilEnd(t, options)
	}, func(v verdictOn) bool {
		return len(v.GPUMemory) == 1 && v.GPUMemory[0].Class == verdict.ClassLeak &&
			v.GPUMemory[0].Diagnosis == string(gpu.DiagnosisTensors)
	})
	if len(v.GPUMemory) != 1 || v.GPUMemory[0].Process != pid {
		t.Fatalf("GPU memory of %+v", v.GPUMemory)
	}

	d := v.GPUMemory[0]
	if d.Class != verdict.ClassLeak || d.Diagnosis != string(gpu.DiagnosisTensors) {
		t.Errorf("the verdict on GPU memory is %s (%s), diagnosis %s", d.Class,
			words.Reason(d.Verdict), d.Diagnosis)
	}

	mustSuspect(t, d.Suspects, "gpu_job.py")
	mustSay(t, "stdout", v.stdout, words.GPUAdvice(&d), words.GPUCountUnknown(d))
	mustMatchBreakdown(t, v, d)
}

// mustMatchBreakdown checks that the final profile has the GPU memory of the breakdown, the memory
// that PyTorch has reserved. The reservation was sampled before: some segments may have come since, of
// 20 MiB, and of 2 MiB for blocks of up to 1 MiB.
func mustMatchBreakdown(t *testing.T, v verdictOn, d summary.GPUMemory) {
	t.Helper()
	const segment, most = 2 << 20, 40 << 20
	var breakdown, profiled int64
	since := int64(-1)
	for _, row := range d.Breakdown {
		breakdown += row.EndBytes
	}

	for _, c := range d.Curves {
		if c.Name == summary.GPUReserved {
			since = breakdown - bytesOf(c.EndBytes)
		}
	}

	p := readProfile(t, v.folder, folder.PlateauFile)
	for i, kind := range p.SampleType {
		for _, s := range p.Sample {
			if kind.Type == "device_space" {
				profiled += s.Value[i]
			}
		}
	}

	if profiled != breakdown || breakdown == 0 || since%segment != 0 || since < 0 ||
		since > most {
		t.Errorf("%d bytes in the breakdown, %d in the profile, reserved %d bytes before",
			breakdown, profiled, since)
	}
}
