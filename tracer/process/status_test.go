package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// stopped is a process that stands still, so that all who look at it see the same. It has touched 40,000 pages.
func stopped(t *testing.T) *Process {
	t.Helper()
	return stoppedProgram(t, tracertest.Build(t, "leak.c", "-pthread"), "4", "10000", "4096", "0")
}

// shrunk is a stopped process that had more memory than it has.
func shrunk(t *testing.T) *Process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 16<<12), 0o600); err != nil {
		t.Fatal(err)
	}
	p := stoppedProgram(t, tracertest.Build(t, "mappings.c", "-fno-omit-frame-pointer"), file)
	status := string(readFile(t, p.path("status")))
	if fields := parseFields([]byte(status)); fields["VmHWM"] == fields["VmRSS"] {
		t.Fatalf("it has not shrunk: the test is wrong: %s", status)
	}
	return p
}

// stoppedProgram runs a copy of a program, whose name looks like fields of stat, up to "done".
func stoppedProgram(t *testing.T, program string, arguments ...string) *Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x) Z 1 (2 3")
	copyFile(t, program, path)
	target := tracertest.Start(t, path, arguments...)
	target.Await("ready")
	target.Say("go")
	target.Await("done")
	stop(t, target.PID())
	return open(t, target.PID())
}

// ps is what ps says of a process.
func ps(t *testing.T, pid int, columns string) []int64 {
	t.Helper()
	out, err := exec.Command("ps", "-o", columns, "--no-headers", "-p", fmt.Sprint(pid)).Output()
	if err != nil {
		t.Fatalf("ps: %v (apt-get install procps)", err)
	}
	var values []int64
	for _, field := range strings.Fields(string(out)) {
		var n int64
		if _, err := fmt.Sscan(field, &n); err != nil {
			t.Fatalf("ps says %q", out)
		}
		values = append(values, n)
	}
	return values
}

// smaps sums fields over the lines of /proc/PID/smaps, in bytes, and counts the mappings.
func smaps(t *testing.T, pid int) (sums map[string]int64, mappings int64) {
	t.Helper()
	sums = make(map[string]int64)
	for line := range strings.Lines(string(readFile(t, fmt.Sprintf("/proc/%d/smaps", pid)))) {
		var name string
		var kibibytes int64
		if n, _ := fmt.Sscanf(line, "%s %d kB", &name, &kibibytes); n == 2 && strings.HasSuffix(name, ":") {
			sums[strings.TrimSuffix(name, ":")] += kibibytes << 10
		}
		if strings.HasPrefix(line, "VmFlags:") {
			mappings++
		}
	}
	return sums, mappings
}

func TestStatusSaysWhatPsAndTheMappingsSay(t *testing.T) {
	for _, p := range []*Process{stopped(t), shrunk(t)} {
		status, err := p.Status()
		if err != nil {
			t.Fatal(err)
		}
		if status.State != 'T' || status.TGID != p.PID || status.Name != "x) Z 1 (2 3" {
			t.Errorf("state %c, TGID %d, name %q", status.State, status.TGID, status.Name)
		}
		want := ps(t, p.PID, "rss,vsz,nlwp")
		if status.RSS != want[0]<<10 || status.Virtual != want[1]<<10 || status.Threads != want[2] {
			t.Errorf("%+v, ps says %d", status, want)
		}
		sums, _ := smaps(t, p.PID)
		if status.RSS != sums["Rss"] || status.Swap != sums["Swap"] {
			t.Errorf("%+v, the mappings sum to %d resident and %d swapped", status, sums["Rss"], sums["Swap"])
		}
		if status.Anonymous != sums["Anonymous"] || status.Anonymous+status.File+status.Shared != status.RSS {
			t.Errorf("%+v, the mappings sum to %d anonymous", status, sums["Anonymous"])
		}
		if status.Parent != os.Getpid() {
			t.Errorf("parent %d, want %d", status.Parent, os.Getpid())
		}
	}
}

func TestASharedMappingIsSharedMemory(t *testing.T) {
	p := openSelf(t)
	before, err := p.Status()
	if err != nil {
		t.Fatal(err)
	}
	const size = 8 << 20
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	after, err := p.Status()
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Shared - before.Shared; got != size {
		t.Errorf("shared memory grew by %d bytes, want %d", got, size)
	}
}

func TestASampleIsWhatStatusAndStatSay(t *testing.T) {
	p := stopped(t)
	sample, err := p.Sample()
	if err != nil {
		t.Fatal(err)
	}
	want := ps(t, p.PID, "rss,vsz,nlwp,min_flt,maj_flt")
	got := []int64{sample.RSS >> 10, sample.Virtual >> 10, sample.Threads, sample.MinorFaults, sample.MajorFaults}
	if !slices.Equal(got, want) {
		t.Errorf("%d, ps says %d", got, want)
	}
	sums, _ := smaps(t, p.PID)
	if sample.Anonymous != sums["Anonymous"] || sample.File+sample.Shared != sums["Rss"]-sums["Anonymous"] || sample.Swap != sums["Swap"] {
		t.Errorf("%+v, the mappings sum to %v", sample, sums)
	}
	if sample.PSS != Unknown || sample.Private != Unknown || sample.Steps != Unknown {
		t.Errorf("%+v knows what it has not read", sample)
	}
}

func TestThreadsAreCounted(t *testing.T) {
	p := openSelf(t)
	status, err := p.Status()
	if err != nil {
		t.Fatal(err)
	}
	if status.Threads < 2 || status.State != 'R' && status.State != 'S' {
		t.Errorf("%+v of a Go program that reads its own status", status)
	}
}

func TestNumbersThatTheKernelDoesNotGiveAreUnknown(t *testing.T) {
	for text, want := range map[string]int64{
		"": Unknown, "12": 12, "-5": Unknown, "99999999999999999999": Unknown, "x": Unknown, "0": 0,
	} {
		if got := number(text); got != want {
			t.Errorf("number(%q) = %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int64{
		"VmRSS:\t   12 kB\n": 12 << 10, "VmSize: 3 kB\n": Unknown, "": Unknown, "VmRSS: 9007199254740993 kB\n": Unknown, "VmRSS\n": Unknown,
	} {
		if got := kibibytes(parseFields([]byte(text)), "VmRSS"); got != want {
			t.Errorf("VmRSS in %q is %d, want %d", text, got, want)
		}
	}
}
