package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// Jobs live faster than real trainers, and the criteria of the judgement are scaled. Short traces are
// not parallel: they may have too few samples beside others.
func TestJob(t *testing.T) {
	t.Run("alarm of rechecks", testAlarm)
	t.Run("fragmentation", testFragmentation)
	t.Run("lost allocations", testLostAllocations)
	t.Run("pages of a file", testPagesOfFile)
	t.Run("plateau after warm-up", testPlateau)
	t.Run("plateau under spikes", testSpikyPlateau)
	t.Run("leak under a warm-up", testLeakUnderWarmUp)
	t.Run("leak under spikes", testLeakUnderSpikes)
	t.Run("wrapper", testWrapper)
	t.Run("leak of tensors", testTensorLeak)
}

const (
	minute    = time.Second // of a job at jobSpeed
	jobSpeed  = 60
	longTrace = 40 * minute
)

// fastTrace returns the options of a trace of a process that lives faster than others.
func fastTrace(t *testing.T, pid int, speed float64, duration time.Duration) trace.Options {
	t.Helper()
	return trace.Options{
		PID: pid, Duration: flagvalue.Duration(duration), Interval: 64 << 10, MaxLive: 1 << 16,
		Native: trace.NativeOutside, Sources: source.Names(), Output: newFolder(t),
		Keepers: trace.KeepersOff, Speed: speed,
	}
}

// verdictOn is the result that a trace has written about a job.
type verdictOn struct {
	summary.Summary
	folder, stdout string
}

// judgeUntil traces until the context ends. The error comes from the command; the files exist in
// any case.
func judgeUntil(ctx context.Context, t *testing.T, options trace.Options) (verdictOn, error) {
	t.Helper()
	tracertest.NeedsRoot(t)

	options.Details = true
	var stdout, stderr bytes.Buffer
	err := trace.Run(ctx, options, traceEnvironment(ctx, console.New(&stderr), &stdout))
	t.Logf("%v\n%s\n%s", err, stderr.String(), stdout.String())

	for _, name := range []string{folder.GrowthFile, folder.WarmupFile, folder.PlateauFile} {
		readProfile(t, options.Output, name)
	}
	return verdictOn{readSummary(t, options.Output), options.Output, stdout.String()}, err
}

func judgeUntilEnd(t *testing.T, options trace.Options) verdictOn {
	t.Helper()
	v := tracertest.Must(judgeUntil(t.Context(), t, options))(t)
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

// startFullJob runs a job that has filled its cache of so many MiB.
func startFullJob(t *testing.T, mib int64, settings ...string) *tracertest.Target {
	t.Helper()
	job := startJob(t, append(settings, fmt.Sprintf("fill=%d", mib))...)
	eventually(t, "the job is full", func() bool { return rssOf(t, job.PID()) > mib<<20 })
	return job
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
	spikes  = "spike=50"  // MiB: ten times as much as leaks in a minute
	often   = "every=3"
)

// shortTrace is too short to call growth a leak, however steady.
const shortTrace = 270 * minute / 60

// startCause runs testdata/causes.c, which grows by 25 MiB a second.
func startCause(t *testing.T, arguments ...string) *tracertest.Target {
	t.Helper()
	arguments = append([]string{arguments[0], "40000"}, arguments[1:]...)
	target := tracertest.Start(t, tracertest.Build(t, "causes.c"), arguments...)
	t.Cleanup(target.Hangup)
	return ready(target)
}

// mustDiagnose checks that a cause has nine tenths of the growth, and that all parts sum to it.
func (v verdictOn) mustDiagnose(t *testing.T, cause diagnosis.Cause) {
	t.Helper()
	var sum int64
	for _, d := range v.Diagnoses {
		if d.Process == v.Process.PID {
			sum += d.Bytes
		}
	}

	if len(v.Diagnoses) == 0 || v.Diagnoses[0].Cause != cause || v.Diagnoses[0].Share < 0.9 ||
		v.Diagnoses[0].Confidence != diagnosis.High {
		t.Errorf("diagnoses %+v, want %s", v.Diagnoses, cause)
	}
	if grown := *v.RSS.EndBytes - *v.RSS.BaselineBytes; sum != grown {
		t.Errorf("the parts sum to %d bytes, the RSS grew by %d", sum, grown)
	}
}

func testFragmentation(t *testing.T) {
	target := startCause(t, "fragment")
	v := judgeUntilEnd(t, fastTrace(t, target.PID(), jobSpeed, shortTrace))
	v.mustBe(t, verdict.ClassGrowing)
	v.mustDiagnose(t, diagnosis.Fragmentation)
	mustSay(t, "the result", v.stdout, "FRAGMENTATION   ", "fragmentation: ",
		"is freed memory that malloc keeps (high confidence)", "malloc_trim")
}

// The live map is full at once, so that objects that are kept look like free memory.
func testLostAllocations(t *testing.T) {
	var v verdictOn
	for range 3 { // a busy machine may take too few samples
		options := fastTrace(t, startCause(t, "keep").PID(), jobSpeed, shortTrace)
		options.Interval, options.MaxLive = 1, 16
		if v = judgeUntilEnd(t, options); v.Class != verdict.ClassTooShort {
			break
		}
	}

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

	for _, d := range v.Diagnoses {
		if d.Cause == diagnosis.Fragmentation {
			t.Errorf("a diagnosis is %q", words.Diagnosis(d))
		}
	}

	for _, r := range v.Breakdown {
		isHeap := r.Kind == growth.KindHeap || r.Kind == growth.KindUnclassified
		if r.Kind == growth.KindRetained || isHeap && r.Lost != growth.LossLiveFull {
			t.Errorf("a row is %+v", r)
		}
	}
}

func testPagesOfFile(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	writeFile(t, data, "", 0o600)
	must(t, os.Truncate(data, 1<<30))

	v := undisturbed(t, func() verdictOn {
		target := startCause(t, "read", data)
		options := fastTrace(t, target.PID(), jobSpeed, shortTrace)
		options.FailOn = "suspected"
		return judgeUntilEnd(t, options)
	}, is(verdict.ClassPlateau))
	v.mustBe(t, verdict.ClassPlateau)
	v.mustDiagnose(t, diagnosis.PageCache)
	mustSay(t, "the result", v.stdout, "STABLE   ", "only pages of mapped files grow")
}

// judgeWarmUp judges a job from the begin of its warm-up on, and returns the seconds of the trace at
// which that has ended.
func judgeWarmUp(
	t *testing.T, failOn flagvalue.FailOn, isRight func(v verdictOn, warm float64) bool, settings ...string,
) (v verdictOn, warm float64, err error) {
	t.Helper()
	v = undisturbed(t, func() (v verdictOn) {
		job := startJob(t, append([]string{warmUp, filling, "wait=1"}, settings...)...)
		options := fastTrace(t, job.PID(), jobSpeed, longTrace)
		options.FailOn = failOn
		defer startWith(t, job, options)()
		v, err = judgeUntil(t.Context(), t, options)
		warm = warmAt(t, job).Sub(v.Started).Seconds()
		return v
	}, func(v verdictOn) bool { return isRight(v, warm) })
	return v, warm, err
}

func testPlateau(t *testing.T) {
	t.Parallel()
	isInTime := func(v verdictOn, warm float64) bool {
		return v.PlateauFrom != nil && warm-2 <= *v.PlateauFrom && *v.PlateauFrom <= warm+4
	}
	v, warm, err := judgeWarmUp(t, "suspected", isInTime, steps)
	must(t, err)
	v.mustBe(t, verdict.ClassPlateau)
	if !isInTime(v, warm) {
		t.Errorf("plateau from %v s, want about %.1f", v.PlateauFrom, warm)
	}

	if v.Bound == nil || *v.Bound*minute.Minutes() > 1<<20 {
		t.Errorf("bound %v, want less than 1 MiB a minute", v.Bound)
	}
}

// warmAt returns when the warm-up of a job ended: on a busy machine it begins and ends late.
func warmAt(t *testing.T, job *tracertest.Target) time.Time {
	t.Helper()
	printed := job.Await("warm")
	seconds := tracertest.Must(strconv.ParseFloat(printed[len(printed)-1], 64))(t)
	return time.UnixMicro(int64(seconds * 1e6))
}

func testSpikyPlateau(t *testing.T) {
	t.Parallel()
	v := undisturbed(t, func() verdictOn {
		job := startJob(t, filling, steps, spikes, often)
		return judgeUntilEnd(t, fastTrace(t, job.PID(), jobSpeed, longTrace))
	}, is(verdict.ClassSpikyPlateau))
	v.mustBe(t, verdict.ClassSpikyPlateau)
	if v.Spikes == nil || v.Spikes.HeightBytes < 40<<20 || v.Spikes.HeightBytes > 60<<20 {
		t.Errorf("spikes %+v, want 50 MiB", v.Spikes)
	}
}

func testLeakUnderSpikes(t *testing.T) {
	t.Parallel()
	v := undisturbed(t, func() verdictOn {
		job := startJob(t, filling, steps, spikes, often, leak)
		return judgeUntilEnd(t, fastTrace(t, job.PID(), jobSpeed, longTrace))
	}, is(verdict.ClassLeak))
	v.mustBe(t, verdict.ClassLeak)
	mustSuspect(t, v.Suspects, "job.py")
}

func testLeakUnderWarmUp(t *testing.T) {
	t.Parallel()
	isLeak := func(v verdictOn, _ float64) bool { return v.Class == verdict.ClassLeak }
	v, _, err := judgeWarmUp(t, "leak", isLeak, steps, leak)
	if exit.StatusOf(err) != exit.Found {
		t.Errorf("--fail-on leak: %v", err)
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

func testWrapper(t *testing.T) {
	t.Parallel()
	script := strings.Join([]string{
		"/usr/bin/python3", tracertest.Source("job.py"), "workers=4", warmUp, filling, steps, leak,
		"; :",
	}, " ")

	wrapper := tracertest.Start(t, "/bin/sh", "-c", script)
	t.Cleanup(wrapper.Hangup)
	ready(wrapper)

	options := fastTrace(t, wrapper.PID(), jobSpeed, longTrace)
	options.UntilSettled = flagvalue.Duration(4 * longTrace) // a busy machine may stop the job for a while
	v := judgeUntilEnd(t, options)
	v.mustBe(t, verdict.ClassLeak)
	mustSuspect(t, v.Suspects, "job.py")
	if v.Asked != wrapper.PID() || !strings.Contains(v.Process.Command, "job.py") {
		t.Errorf("traced %+v, asked for %d, want the child of %d", v.Process, v.Asked,
			wrapper.PID())
	}

	if len(v.Groups) != 1 || v.Groups[0].Role != growth.RoleWorker ||
		v.Groups[0].Processes != 4 ||
		v.Groups[0].Verdict != verdict.ClassPlateau {
		t.Errorf("groups %+v, want four stable workers", v.Groups)
	}
}

// An hour of the job's life takes six seconds. The trace goes on until the alarm is raised: where a
// busy machine disturbs a check, the streak starts again.
func testAlarm(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var log output
	slog.SetDefault(console.New(&log).Logger(slog.LevelInfo, console.ColorAuto))

	job := startJob(t, "fill=50", "leak=64")
	ctx, interrupt := context.WithTimeout(t.Context(), guard)
	defer interrupt()
	go func() {
		for ctx.Err() == nil && !strings.Contains(log.String(), "LEAK: +") {
			time.Sleep(10 * time.Millisecond)
		}
		interrupt()
	}()

	v, err := judgeUntil(ctx, t, fastTrace(t, job.PID(), 600, 0))
	if err != nil {
		t.Error(err)
	}

	v.mustBe(t, verdict.ClassLeak)
	if v.Ended != summary.EndedInterrupt {
		t.Errorf("ended: %q", v.Ended)
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
		options := fastTrace(t, pid, jobSpeed, longTrace)
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
