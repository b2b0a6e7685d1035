package process

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// ps and smaps are the oracles.
func TestSample(t *testing.T) {
	for _, p := range []*Process{startStopped(t), startShrunk(t)} {
		status, sample := must(p.Status()), must(p.Sample())
		isChild := status.TGID == p.PID && status.Parent == os.Getpid()
		if status.State != 'T' || status.Name != hostileName || !isChild {
			t.Errorf("%+v", status)
		}

		want := ps(t, p.PID, "rss,vsz,nlwp,min_flt,maj_flt")
		got := []int64{
			sample.RSS >> 10, sample.Virtual >> 10, sample.Threads, sample.MinorFaults, sample.MajorFaults,
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d, ps prints %d", got, want)
		}

		smaps := readSmaps(t, p.PID)
		got = []int64{sample.RSS, sample.Swap, sample.Anonymous, sample.File + sample.Shared}
		rss, anonymous := sumSmaps(smaps, "Rss"), sumSmaps(smaps, "Anonymous")
		want = []int64{rss, sumSmaps(smaps, "Swap"), anonymous, rss - anonymous}
		if !slices.Equal(got, want) {
			t.Errorf("%d, smaps sums to %d", got, want)
		}
		if sample.PSS != Unknown || sample.Private != Unknown || sample.Steps != Unknown {
			t.Errorf("%+v contains what was not read", sample)
		}
	}
}

func TestStatus(t *testing.T) {
	p := openSelf(t)
	before := must(p.Status())
	const size = 8 << 20
	memory := must(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_POPULATE))
	defer unix.Munmap(memory)

	after := must(p.Status())
	if got := after.Shared - before.Shared; got != size {
		t.Errorf("shared memory grew by %d bytes, want %d", got, size)
	}
	if after.Threads < 2 || after.State != 'R' && after.State != 'S' {
		t.Errorf("%+v of a Go program that reads its own status", after)
	}
}

// filterThread installs a seccomp filter that allows everything in a thread of its own.
func filterThread(t *testing.T) {
	t.Helper()
	done := make(chan error)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		runtime.LockOSThread() // which ends with the goroutine
		allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
		filter := unix.SockFprog{Len: 1, Filter: &allow}
		done <- errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
			unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
				uintptr(unsafe.Pointer(&filter)), 0, 0))
		<-end
	}()
	tracertest.NoError(t, <-done)
}

// The kernel's account of its filters is the oracle; this process has none before.
func TestHasFilter(t *testing.T) {
	t.Run("filter of any thread counts", func(t *testing.T) {
		p := openSelf(t)
		if must(p.HasFilter()) {
			t.Skip("the tests themselves run under a seccomp filter")
		}
		filterThread(t)
		if !must(p.HasFilter()) {
			t.Error("the filter of a thread is not seen")
		}
	})

	t.Run("main thread's filter is in its status", func(t *testing.T) {
		command := exec.Command(tracertest.Build(t, "deny.c"), "/bin/sleep", "1000")
		tracertest.NoError(t, command.Start())
		defer command.Wait()
		defer command.Process.Kill()

		p := open(t, command.Process.Pid)
		for p.Refresh() == nil && !strings.Contains(p.Executable, "sleep") { // execve is under way
			time.Sleep(time.Millisecond)
		}
		if status := must(p.Status()); !status.Filtered || status.ShadowStack || !must(p.HasFilter()) {
			t.Errorf("%+v", status)
		}
	})
}

func TestShadowStack(t *testing.T) {
	for features, want := range map[string]bool{"shstk wrss": true, "wrss": false, "": false} {
		raw := "Name:\tx\nSeccomp:\t0\nx86_Thread_features:\t" + features + "\n"
		if got := parseStatus([]byte(raw)); got.ShadowStack != want || got.Filtered {
			t.Errorf("%q: %+v", features, got)
		}
	}
}

func TestStat(t *testing.T) {
	p := startStopped(t)
	stat := must(p.Stat())
	if stat.Parent != os.Getpid() || stat.State != 'T' || stat.MinorFaults < 40000 {
		t.Errorf("%+v", stat)
	}
	if got := must(ReadStat(p.PID)); got != stat {
		t.Errorf("ReadStat returns %+v, want %+v", got, stat)
	}

	// The kernel puts [heap] where the program break was.
	maps := must(p.Maps())
	heap := slices.IndexFunc(maps, func(m Mapping) bool { return m.Path == "[heap]" })
	if got := p.StartBrk(); heap < 0 || got != maps[heap].Start {
		t.Errorf("the program break began at %#x, mapped: %+v", got, maps)
	}

	if p.IsExiting() {
		t.Error("a stopped process is exiting")
	}
	kill(t, p)
	if !p.IsExiting() || p.StartBrk() != 0 {
		t.Errorf("a zombie goes on, with its program break at %#x", p.StartBrk())
	}
}

func TestAge(t *testing.T) {
	before := time.Now()
	p := startEcho(t, exec.Command("cat"))
	age := must(p.Stat()).Age()
	if most := time.Since(before) + 2*tick; age > most { // one tick for each clock
		t.Errorf("%v old; it was started %v ago", age, most)
	}

	for _, p := range []*Process{p, openSelf(t)} {
		want := time.Duration(ps(t, p.PID, "etimes")[0])*time.Second - tick
		if age := must(p.Stat()).Age(); age < want {
			t.Errorf("%v old, at least %v by ps", age, want)
		}
	}
}

func TestRollup(t *testing.T) {
	type sharing struct{ pss, private int64 }
	for _, p := range []*Process{startStopped(t), startShrunk(t)} {
		// The shared memory of a stopped process changes with the processes that begin and end
		// beside it.
		var smaps []vma
		rollup := readAtRest(t, func() sharing {
			pss, private, err := p.Rollup()
			tracertest.NoError(t, err)
			return sharing{pss, private}
		}, func() { smaps = readSmaps(t, p.PID) })

		clean, dirty := sumSmaps(smaps, "Private_Clean"), sumSmaps(smaps, "Private_Dirty")
		if clean == 0 || dirty == 0 {
			t.Fatalf("%d bytes clean, %d dirty: the test is wrong", clean, dirty)
		}
		if rollup.private != clean+dirty {
			t.Errorf("private %d, smaps sums to %d", rollup.private, clean+dirty)
		}

		// The PSS of each mapping is rounded down to a KiB.
		pss := sumSmaps(smaps, "Pss")
		if rounded := rollup.pss - pss; rounded < 0 || rounded > int64(len(smaps))<<10 {
			t.Errorf("PSS %d, %d mappings sum to %d", rollup.pss, len(smaps), pss)
		}
	}
}

// The kernel reports the same in /proc/PID/stat, in ticks.
func TestCPUTime(t *testing.T) {
	const script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo ready; read x"
	target := tracertest.StartCommand(t, exec.Command("sh", "-c", script))
	target.Await("ready")
	p := open(t, target.PID())
	got := must(p.CPUTime())

	raw := string(must(p.read("stat")))
	fields := strings.Fields(raw[strings.LastIndexByte(raw, ')')+2:])
	want := time.Duration(number(fields[11])+number(fields[12])) * tick
	if got < want-2*tick || got > want+2*tick || want == 0 {
		t.Errorf("%s, want %s", got, want)
	}

	kill(t, p)
	if _, err := p.CPUTime(); err == nil {
		t.Error("a zombie has a CPU clock")
	}
}

func TestMeasureCPUTime(t *testing.T) {
	p := startStopped(t)
	var err error
	if cost := MeasureCPUTime(func() { _, _, err = p.Rollup() }); cost <= 0 || err != nil {
		t.Errorf("reading smaps_rollup costs %v, %v", cost, err)
	}
	const waiting = 200 * time.Millisecond
	if cost := MeasureCPUTime(func() { time.Sleep(waiting) }); cost > waiting/4 {
		t.Errorf("waiting %v costs %v", waiting, cost)
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]int64{
		"": Unknown, "12": 12, "-5": Unknown, "99999999999999999999": Unknown, "x": Unknown, "0": 0,
	} {
		if got := number(text); got != want {
			t.Errorf("number(%q) = %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int64{
		"VmRSS:\t   12 kB\n": 12 << 10, "VmSize: 3 kB\n": Unknown, "": Unknown,
		"VmRSS: 9007199254740993 kB\n": Unknown, "VmRSS\n": Unknown,
	} {
		if got := kibibytes(parseFields([]byte(text)), "VmRSS"); got != want {
			t.Errorf("VmRSS in %q is %d, want %d", text, got, want)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add(readFile(f, "/proc/self/stat"))
	f.Add([]byte("1 (x) Z 1 (2) S 0"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		stat, err := parseStat(raw)
		if err == nil && (stat.Start < 0 || stat.MinorFaults < Unknown || stat.Age() < 0) {
			t.Errorf("%+v", stat)
		}
	})
}
