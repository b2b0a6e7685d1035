package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// minute is how long a minute of these jobs takes: the judgement is told that they live sixty times faster than others.
const minute = time.Second

// startJob runs testdata/job.py, whose memory does what the settings say.
func startJob(t *testing.T, settings ...string) *tracertest.Target {
	t.Helper()
	target := tracertest.Start(t, "/usr/bin/python3", append([]string{tracertest.Source("job.py")}, settings...)...)
	t.Cleanup(target.Hangup)
	target.Await("ready")
	return target
}

// A verdictOn is what a trace has said about a job.
type verdictOn struct {
	summary.Summary
	folder, stdout string
}

// judgeJob traces a process for so many minutes of its life.
func judgeJob(t *testing.T, pid, minutes int) verdictOn {
	t.Helper()
	return judge(t, fastTrace(t, pid, time.Minute.Seconds()/minute.Seconds(), time.Duration(minutes)*minute))
}

// judgeFromStart traces a job from its start for so many minutes of its life.
func judgeFromStart(t *testing.T, minutes int, settings ...string) verdictOn {
	t.Helper()
	flags, end := watchedFromStart(t, time.Minute.Seconds()/minute.Seconds(), time.Duration(minutes)*minute, settings...)
	defer end()
	return judge(t, flags)
}

// watchedFromStart is a trace of a job from its start: what that does after so long, it does so long after the trace has begun. The
// caller ends it.
func watchedFromStart(t *testing.T, pace float64, duration time.Duration, settings ...string) (flags traceFlags, end func()) {
	t.Helper()
	job := startJob(t, append(settings, "wait=1")...)
	flags = fastTrace(t, job.PID(), pace, duration)
	return flags, beginWith(t, job, flags)
}

func judge(t *testing.T, flags traceFlags) verdictOn {
	t.Helper()
	v, err := judgeUntil(t.Context(), t, flags)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (v verdictOn) mustBe(t *testing.T, class growth.Class) {
	t.Helper()
	if v.Class != class {
		t.Errorf("the verdict is %s (%s), want %s", v.Class, v.Why, class)
	}
}

// mustBlame wants the line of job.py that leaks in the first culprit.
func (v verdictOn) mustBlame(t *testing.T) {
	t.Helper()
	line := fmt.Sprintf("remember (%s:%d)", tracertest.Source("job.py"), lineOf(t, "# LEAK"))
	if len(v.Suspects) == 0 || !slices.Contains(append(v.Suspects[0].Callers, v.Suspects[0].Path...), line) {
		t.Errorf("culprits %+v, want %s", v.Suspects, line)
	}
	for _, s := range readProfile(t, v.folder, folder.GrowthFile).Sample {
		if slices.Contains(s.Label["trend"], string(growth.TrendAccumulating)) {
			return
		}
	}
	t.Error("no sample of growth.pb.gz is labelled as accumulating")
}

// mustGrow wants a rate in bytes a minute of the job's life, within a tenth.
func (v verdictOn) mustGrow(t *testing.T, perMinute float64) {
	t.Helper()
	if v.RateBytesPerMin == nil {
		t.Fatal("no rate")
	}
	if got := *v.RateBytesPerMin * minute.Minutes(); got < 0.9*perMinute || got > 1.1*perMinute {
		t.Errorf("rate %.3g bytes a minute, want %.3g within a tenth", got, perMinute)
	}
}

// lineOf is the number of the line of job.py that ends so.
func lineOf(t *testing.T, end string) int {
	t.Helper()
	text, err := os.ReadFile(tracertest.Source("job.py"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(line, end) {
			return i + 1
		}
	}
	t.Fatalf("job.py has no line that ends with %q", end)
	return 0
}

const (
	warmUp  = "warmup=8"
	filling = "fill=200"
	steps   = "steps=5"
	leak    = "leak=1024" // KiB a step: 5 MiB a minute of the job's life
	spikes  = "spike=50"  // MiB: ten times what leaks in a minute
	often   = "every=3"
)

// They run together, but not with those that grow, beside which they would be the wrong process.
func TestWhatDoesNotLeakIsNotSaidTo(t *testing.T) {
	t.Run("warm-up that ends in a plateau", checkWarmUp)
	t.Run("validation spikes", checkSpikes)
}

func checkWarmUp(t *testing.T) {
	t.Parallel()
	v := judgeFromStart(t, 40, warmUp, filling, steps)
	v.mustBe(t, growth.ClassPlateau)
	if v.PlateauFromS == nil {
		t.Error("no plateau is told")
	} else if *v.PlateauFromS < 6 || *v.PlateauFromS > 12 {
		t.Errorf("plateau from %.1f s, want about 8", *v.PlateauFromS)
	}
	if v.BoundBytesPerMin == nil || *v.BoundBytesPerMin*minute.Minutes() > 1<<20 {
		t.Errorf("bound %v, want less than 1 MiB a minute", v.BoundBytesPerMin)
	}
}

func TestALeakUnderAWarmUpIsFoundWithItsLine(t *testing.T) {
	t.Parallel()
	v := judgeFromStart(t, 40, warmUp, filling, steps, leak)
	v.mustBe(t, growth.ClassLeak)
	v.mustGrow(t, 5<<20)
	v.mustBlame(t)
	if v.SecondsToLimit == nil {
		t.Error("no time to the limit, though the machine has one")
	}
}

// shortlyWatched is a trace of a job that leaks after a warm-up, of 11 minutes of its life, each of which takes two seconds. The
// caller ends it.
func shortlyWatched(t *testing.T) (flags traceFlags, end func()) {
	t.Helper()
	return watchedFromStart(t, 30, 22*time.Second, "warmup=4", filling, steps, leak)
}

func TestALeakThatHasNotBeenWatchedForLongIsSuspected(t *testing.T) {
	t.Parallel()
	flags, end := shortlyWatched(t)
	defer end()
	v := judge(t, flags)
	v.mustBe(t, growth.ClassSuspected)
	v.mustBlame(t)
}

func checkSpikes(t *testing.T) {
	t.Parallel()
	v := judgeJob(t, startJob(t, filling, steps, spikes, often).PID(), 40)
	v.mustBe(t, growth.ClassSpikyPlateau)
	if v.Spikes == nil || v.Spikes.HeightBytes < 40<<20 || v.Spikes.HeightBytes > 60<<20 {
		t.Errorf("spikes %+v, want 50 MiB", v.Spikes)
	}
}

func TestALeakUnderSpikesIsFoundWithItsLine(t *testing.T) {
	t.Parallel()
	v := judgeJob(t, startJob(t, filling, steps, spikes, often, leak).PID(), 40)
	v.mustBe(t, growth.ClassLeak)
	v.mustBlame(t)
}

func TestAWrapperIsNotTakenForItsTrainer(t *testing.T) {
	t.Parallel()
	job := append([]string{"/usr/bin/python3", tracertest.Source("job.py"), "workers=4"}, warmUp, filling, steps, leak)
	wrapper := tracertest.Start(t, "/bin/sh", "-c", strings.Join(job, " ")+"; :")
	t.Cleanup(wrapper.Hangup)
	wrapper.Await("ready")
	v := judgeJob(t, wrapper.PID(), 40)
	v.mustBe(t, growth.ClassLeak)
	v.mustBlame(t)
	if v.Asked != wrapper.PID() || v.Process.PID == wrapper.PID() || !strings.Contains(v.Process.Command, "job.py") {
		t.Errorf("traced %+v, asked for %d, want the child of %d", v.Process, v.Asked, wrapper.PID())
	}
	if len(v.Groups) != 1 || v.Groups[0].Role != growth.RoleLoaderWorker || v.Groups[0].Processes != 4 || v.Groups[0].Verdict != growth.ClassPlateau {
		t.Errorf("groups %+v, want four stable DataLoader workers", v.Groups)
	}
}

func TestInTheMiddleOfAWarmUpItIsTooEarlyToTell(t *testing.T) {
	t.Parallel()
	v := judgeJob(t, startJob(t, "warmup=60", "fill=600", steps).PID(), 12)
	v.mustBe(t, growth.ClassGrowing)
	v.mustGrow(t, 10<<20)
	if v.SecondsToLimit == nil || v.WatchLongerS == nil || *v.WatchLongerS == 0 {
		t.Errorf("limit in %v s, watch %v s longer: want the pace and how long to watch", v.SecondsToLimit, v.WatchLongerS)
	}
	mustSay(t, "stdout", v.stdout, "GROWING, too early to tell", "if this pace holds", "watch at least")
}
