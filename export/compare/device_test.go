package compare

import (
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// blocks holds n blocks of a size on GPU 0.
func blocks(s *growth.Stack, n, size int64) growth.Holding {
	return growth.Holding{Stack: s, Kind: growth.KindCudaBlock, GPU: "0", InuseObjects: float64(n), InuseBytes: n * size, DeviceBytes: n * size}
}

func attributed(bytes int64) growth.Holding {
	return growth.Holding{Stack: growth.NamedStack(1, "[device: not attributed]"), Kind: growth.KindNotAttributed, DeviceBytes: bytes}
}

func TestProfilesOfDeviceMemoryAreComparedByWhatIsOnGPUs(t *testing.T) {
	const mebi = 1 << 20
	before := profileOf(t, 1, heap(stack(1, "load:3"), 10, 4096), blocks(stack(1, "step:9"), 2, mebi), attributed(5*mebi))
	after := profileOf(t, 1, heap(stack(1, "load:3"), 90, 4096), blocks(stack(1, "step:9"), 5, mebi), attributed(5*mebi))
	after.TimeNanos++
	r, err := Profiles(Profile{"a", before}, Profile{"b", after}, Options{Sample: "device_space"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Total.Before != exactly(7*mebi) || r.Total.Change != exactly(3*mebi) || r.Outcome != OutcomeMore {
		t.Errorf("%+v: %s", r.Total, r.Sentence)
	}
	if row := rowOf(t, r, "step"); row.Change != exactly(3*mebi) || row.Kind != "cuda_block" {
		t.Errorf("%+v", row)
	}
	for _, row := range r.Stacks {
		if row.Function == "load" {
			t.Errorf("memory of the host is compared: %+v", row)
		}
	}
	if r, err = Profiles(Profile{"a", before}, Profile{"b", after}, Options{}); err != nil || r.SampleType != residentSpace || r.Total.Change != exactly(80*4096) {
		t.Errorf("by default: %+v, %v", r, err)
	}
}

func TestAProfileWithoutDeviceMemoryHasNoneOfWhatAnotherHasOnGPUs(t *testing.T) {
	without, with := profileOf(t, 1, heap(stack(1, "load:3"), 10, 4096)), profileOf(t, 1, blocks(stack(1, "step:9"), 2, 512))
	with.TimeNanos++
	r, err := Profiles(Profile{"a", without}, Profile{"b", with}, Options{Sample: "device_space"})
	if err != nil || rowOf(t, r, "step").State != StateAppeared || r.Total.Before != exactly(0) {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = Profiles(Profile{"a", profileOf(t, 1)}, Profile{"b", profileOf(t, 1)}, Options{Sample: "device_space"})
	if err == nil || !strings.Contains(err.Error(), "device_space") {
		t.Errorf("neither has it: %v", err)
	}
}

// Blocks are sampled as the heap is: the error of 100 that stand for themselves with p = 1 - 1/e is 1.96 sqrt(100 (1-p)/p) blocks.
func TestSampledBlocksHaveTheErrorOfTheirSamples(t *testing.T) {
	before, after := profileOf(t, interval), profileOf(t, interval, blocks(stack(1, "step:9"), 100, interval))
	after.TimeNanos++
	r, err := Profiles(Profile{"a", before}, Profile{"b", after}, Options{Sample: "device_space"})
	if err != nil {
		t.Fatal(err)
	}
	change := rowOf(t, r, "step").Change
	const want = 1.96 * 7.629 * interval // sqrt(100/(e-1)) = 7.629
	if half := change.half(); half < want || half > 1.5*want || !change.ordered() {
		t.Errorf("%+v: %g, want a little more than %g", change, half, want)
	}
}

func TestFoldersAreComparedByTheVerdictOnDeviceMemoryWhereThatIsAskedFor(t *testing.T) {
	of := func(rate float64, class growth.Class) *Trace {
		grown := profileAt(t, began, 10*time.Minute, 1, heap(stack(1, "load:3"), 10, 4096), blocks(stack(1, "step:9"), int64(rate), 10))
		low, high := rate-1, rate+1
		v := export.Verdict{Class: class, RateBytesPerMin: &rate, RateLow: &low, RateHigh: &high}
		return &Trace{Name: "t", Growth: grown, Warmup: profileOf(t, 1), Plateau: profileOf(t, 1), Summary: &export.Summary{
			Process: export.Process{PID: 7}, Verdict: export.Verdict{Class: growth.ClassPlateau, Why: "no growth"}, Devices: []export.Device{{Process: 7, Verdict: v}},
		}}
	}
	r, err := Traces(of(1000, growth.ClassLeak), of(0, growth.ClassPlateau), Options{Sample: "device_space"})
	if err != nil || r.Outcome != OutcomeGone || r.Name != "THE LEAK IS GONE" || r.Before.Verdict != "leak" || r.Total.Before != exactly(1000) {
		t.Errorf("%+v, %v", r, err)
	}
	none := of(0, growth.ClassPlateau)
	none.Summary.Devices = nil
	if r, err = Traces(of(1000, growth.ClassLeak), none, Options{Sample: "device_space"}); err != nil || r.Outcome != OutcomeUnknown || !strings.Contains(r.Sentence, "device memory") {
		t.Errorf("%+v, %v", r, err)
	}
}
