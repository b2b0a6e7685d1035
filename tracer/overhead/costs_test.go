package overhead_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// hangs makes the test binary a program that hangs in the middle of measuring costs.
const hangs = "ALLOCSCOPE_TEST_HANGS_WHILE_MEASURING"

func init() {
	if os.Getenv(hangs) == "" {
		return
	}
	fmt.Println(hang())
	os.Exit(1)
}

// hang prints the PID of the calibrated child once its functions are probed, and waits for ever.
func hang() error {
	k, err := load(probe.Automatic, false)
	if err != nil {
		return err
	}
	_, err = calibrate.Measure(context.Background(), calibrate.Tracing{
		Mode: k.Mode, Programs: k.Program, Detach: func([]link.Link) {}, Timeout: time.Minute,
		SetTraced: func(pid int, traced bool) error {
			fmt.Printf("%d\nready\n", pid)
			select {}
		},
	})
	return err
}

func load(mode probe.Mode, samplesItself bool) (*kernel.Kernel, error) {
	return kernel.Load(kernel.Config{
		MaxLive: kernel.DefaultMaxLive, MaxStacks: kernel.DefaultMaxStacks,
		MaxFaults: kernel.MaxFaults, Mode: mode, SamplesItself: samplesItself,
	})
}

func TestCosts(t *testing.T) {
	tracertest.NeedsRoot(t)
	for _, mode := range []probe.Mode{probe.Session, probe.Multi, probe.Single} {
		t.Run("measured by "+mode.String(), func(t *testing.T) { testMeasured(t, mode, false) })
	}
	t.Run("of the preloaded library", func(t *testing.T) { testMeasured(t, probe.Automatic, true) })
	t.Run("killed calibration leaves no child and no probe", testKilled)
}

// testMeasured measures on a kernel side of its own, in which nothing may be left of that.
func testMeasured(t *testing.T, mode probe.Mode, samplesItself bool) {
	k, err := load(mode, samplesItself)
	if mode != probe.Single && errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("this kernel does not probe by %s: %v", mode, err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer k.Close()

	period := source.FaultPeriod(kernel.DefaultInterval)
	detach := func(links []link.Link) { probe.Close(links) }
	defaults := calibrate.DefaultCosts
	for tries := 5; ; tries-- { // others that use the processor may spoil a measurement
		costs, err := overhead.MeasureCosts(t.Context(), k, nil, period, time.Minute, detach)
		tracertest.NoError(t, err)
		t.Logf("%+v", costs)
		if costs.Entry == defaults.Entry || costs.Return == defaults.Return || costs.Fault == defaults.Fault {
			t.Errorf("%+v has defaults", costs)
		}

		if (costs.ShimPair > 0) != samplesItself {
			t.Errorf("%+v: the library's work has a cost where there is one", costs)
		}

		atBound := slices.ContainsFunc([]float64{costs.Entry, costs.Stepped, costs.Return},
			func(c float64) bool { return c <= calibrate.MinTrapCost || c >= calibrate.MaxTrapCost })
		if !atBound {
			break
		}
		if tries == 1 {
			t.Fatalf("%+v has a bound of what is believed", costs)
		}
	}
	mustBeEmpty(t, k)
}

// mustBeEmpty fails if the maps of the kernel side have counted or kept anything.
func mustBeEmpty(t *testing.T, k *kernel.Kernel) {
	t.Helper()
	for _, m := range []*ebpf.Map{k.Counters, k.StackEnds, k.PythonErrors} {
		values := tracertest.Must(kernel.ReadCounters(m))(t)
		for i, n := range values {
			if n > 0 {
				t.Errorf("%v has counted %d at %d", m, n, i)
			}
		}
	}

	for _, m := range []*ebpf.Map{k.Targets, k.Live, k.Tensors, k.Tallies, k.ReportedStacks, k.Faults} {
		var key []byte
		if m.NextKey(nil, &key) == nil {
			t.Errorf("%v has an entry: %x", m, key)
		}
	}
}

func testKilled(t *testing.T) {
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), hangs+"=1")
	target := tracertest.StartCommand(t, command)
	pid := tracertest.Must(strconv.Atoi(target.Await("ready")[0]))(t)
	child := tracertest.Must(unix.PidfdOpen(pid, 0))(t)
	defer unix.Close(child)

	_, links := tracertest.BPFFiles(t, command.Process.Pid)
	if len(links) == 0 && features.HaveBPFLinkUprobeMulti() == nil { // single uprobes do not show whose they are
		t.Error("the child's functions are not probed")
	}

	tracertest.NoError(t, command.Process.Kill())
	awaitExit(t, child)
	for id := range links {
		awaitNoLink(t, link.ID(id))
	}
}

func awaitExit(t *testing.T, pidfd int) {
	t.Helper()
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		tracertest.NoError(t, err)
		return
	}
}

func awaitNoLink(t *testing.T, id link.ID) {
	t.Helper()
	for {
		l, err := link.NewFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		tracertest.NoError(t, err)
		l.Close()
		runtime.Gosched()
	}
}
