package tracer_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// TestCosts measures what probes cost on this machine.
func TestCosts(t *testing.T) {
	t.Run("every mode", testCostsEveryMode)
	t.Run("nothing is left behind", testCostsNothingLeftBehind)
	t.Run("killed calibration leaves no child and no probe", testCostsKilledCalibrationLeavesNoChildNoProbe)
}

// hangs makes the test binary a program that hangs in the middle of measuring prices.
const hangs = "ALLOCSCOPE_TEST_HANGS_WHILE_MEASURING"

func init() {
	if os.Getenv(hangs) == "" {
		return
	}
	err := tracer.MeetCalibration(func(pid int) {
		fmt.Printf("%d\nready\n", pid)
		select {}
	})
	fmt.Println(err)
	os.Exit(1)
}

func testCostsEveryMode(t *testing.T) {
	tracertest.NeedsRoot(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			prices, err := tracer.MeasurePrices(mode, func(map[string]*ebpf.Map) {})
			if err != nil {
				t.Fatalf("%+v", err)
			}
			t.Logf("%+v", prices)
			if prices.Entry == calibrate.DefaultCosts.Entry || prices.Return == calibrate.DefaultCosts.Return || prices.Fault == calibrate.DefaultCosts.Fault {
				t.Errorf("%+v has defaults", prices)
			}
			for _, price := range []float64{prices.Entry, prices.Stepped, prices.Return} {
				if price <= calibrate.MinTrapCost || price >= calibrate.MaxTrapCost {
					t.Errorf("%+v has a bound of what is believed", prices)
				}
			}
			if runtime.GOARCH == "amd64" && prices.Stepped <= prices.Entry { // arm64 emulates little
				t.Errorf("a single-stepped entry takes %v ns, an emulated one %v", prices.Stepped, prices.Entry)
			}
		})
	}
}

func testCostsNothingLeftBehind(t *testing.T) {
	tracertest.NeedsRoot(t)
	for _, mode := range modes {
		_, err := tracer.MeasurePrices(mode, func(maps map[string]*ebpf.Map) {
			for _, name := range []string{bpf.MapCounters, bpf.MapStackEnds, bpf.MapPythonErrors} {
				if n := sum(t, maps[name]); n > 0 {
					t.Errorf("%v: %s has counted %d", mode, name, n)
				}
			}
			for _, name := range []string{bpf.MapTargets, bpf.MapLive, bpf.MapTensors, bpf.MapTallies, bpf.MapReportedStacks, bpf.MapFaults} {
				var key []byte
				if maps[name].NextKey(nil, &key) == nil {
					t.Errorf("%v: %s has an entry: %x", mode, name, key)
				}
			}
		})
		if err != nil {
			t.Fatalf("%v: %+v", mode, err)
		}
	}
}

func sum(t *testing.T, m *ebpf.Map) (sum uint64) {
	t.Helper()
	for i := range m.MaxEntries() {
		var values []uint64
		if err := m.Lookup(i, &values); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			sum += v
		}
	}
	return sum
}

func testCostsKilledCalibrationLeavesNoChildNoProbe(t *testing.T) {
	tracertest.NeedsRoot(t)
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), hangs+"=1")
	target := tracertest.StartCommand(t, command)
	pid, err := strconv.Atoi(target.Await("ready")[0])
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	links := linksOf(t, pid)
	if len(links) == 0 && slices.Contains(modes, probe.Multi) { // single uprobes do not tell whose they are
		t.Error("the child's functions are not probed")
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, child)
	for _, id := range links {
		awaitNoLink(t, id)
	}
}

// linksOf gives the IDs of the links that probe a process.
func linksOf(t *testing.T, pid int) (ids []link.ID) {
	t.Helper()
	links := new(link.Iterator)
	defer links.Close()
	for links.Next() {
		info, err := links.Link.Info()
		if err != nil || info.UprobeMulti() == nil {
			continue // another's that is gone, or of another kind
		}
		if of, ok := info.UprobeMulti().Pid(); ok && of == uint32(pid) {
			ids = append(ids, info.ID)
		}
	}
	if err := links.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// await waits for the end of a process.
func await(t *testing.T, pidfd int) {
	t.Helper()
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

// awaitNoLink waits until the kernel has taken a link away.
func awaitNoLink(t *testing.T, id link.ID) {
	t.Helper()
	for {
		l, err := link.NewFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		runtime.Gosched()
	}
}
