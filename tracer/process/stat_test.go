package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestFaultsAreThoseThatPsSays(t *testing.T) {
	p := stopped(t)
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	minor, major := stat.MinorFaults, stat.MajorFaults
	want := ps(t, p.PID, "min_flt,maj_flt")
	if minor != want[0] || major != want[1] {
		t.Errorf("%d minor and %d major faults, ps says %d", minor, major, want)
	}
	if minor < 40000 {
		t.Errorf("%d minor faults of a program that has touched 40000 pages", minor)
	}
}

// The kernel begins the heap where the break was.
func TestTheBreakBeganWhereTheHeapBegins(t *testing.T) {
	p := stopped(t)
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	heap := slices.IndexFunc(maps, func(m Mapping) bool { return m.Path == "[heap]" })
	if got := p.StartBreak(); heap < 0 || got != maps[heap].Start {
		t.Errorf("the break began at %#x, and these are mapped: %+v", got, maps)
	}
}

// started is the program cat in a state in which it stays.
func started(t *testing.T, arguments ...string) *Process {
	t.Helper()
	return open(t, startEcho(t, exec.Command("cat", arguments...)))
}

func stat(t *testing.T, p *Process) Stat {
	t.Helper()
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat
}

func ageOf(p *Process) (time.Duration, error) {
	stat, err := p.Stat()
	return stat.Age(), err
}

func TestTheAgeIsTheTimeSinceTheStart(t *testing.T) {
	before := time.Now()
	p := started(t)
	age, err := ageOf(p)
	if most := time.Since(before) + 2*tick; err != nil || age > most { // one tick of each clock
		t.Errorf("%v old, %v; it was started %v ago", age, err, most)
	}
	other := ps(t, p.PID, "etimes")[0]
	if later, err := ageOf(p); err != nil || later < age || later < time.Duration(other)*time.Second-tick {
		t.Errorf("%v old after %v, ps says %d s, %v", later, age, other, err)
	}
	self := ps(t, os.Getpid(), "etimes")[0]
	if age, err := ageOf(openSelf(t)); err != nil || age < time.Duration(self)*time.Second-tick {
		t.Errorf("this process is %v old, ps says %d s, %v", age, self, err)
	}
}

func TestEachExecutionHasAnImageOfItsOwn(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("/bin/sh", "-c", "echo shell; read line; exec cat"))
	target.Await("shell")
	p := open(t, target.PID())
	before, again := stat(t, p), stat(t, p)
	if before != again {
		t.Errorf("%+v, then %+v: nothing has happened", before, again)
	}
	target.Say("go")
	target.Say("ready")
	target.Await("ready")
	after := stat(t, p)
	if after.Image == before.Image || after.Start != before.Start {
		t.Errorf("%+v before an execution, %+v after it", before, after)
	}
	if err := p.Refresh(); err != nil || p.Name != "cat" || !slices.Equal(p.Arguments, []string{"cat"}) {
		t.Errorf("%+v, %v", p, err)
	}
	if want, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID)); p.Executable != want {
		t.Errorf("executable %q, want %q", p.Executable, want)
	}
}

func TestWhatIsGoneHasNoStat(t *testing.T) {
	command := exec.Command("cat")
	p := open(t, startEcho(t, command))
	command.Process.Kill()
	command.Wait()
	_, statErr := p.Stat()
	_, sampleErr := p.Sample()
	for _, err := range []error{statErr, sampleErr, p.Refresh()} {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
	if _, err := ReadStat(command.Process.Pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestAProcessThatNobodyHoldsHasTheSameStat(t *testing.T) {
	p := stopped(t)
	got, err := ReadStat(p.PID)
	if err != nil || got != stat(t, p) || got.Parent != os.Getpid() || got.State != 'T' {
		t.Errorf("%+v, %v; want %+v", got, err, stat(t, p))
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
