package source

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func executables(paths ...string) (maps []process.Mapping) {
	for i, path := range paths {
		maps = append(maps, process.Mapping{Path: path, Execute: true, Inode: uint64(i + 1)})
	}
	return maps
}

// A source that lacks its name, its file or its state is named here.
func TestRegistry(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		l := NewLibraries(LibraryOptions{Wants: func(string) bool { return wanted }})
		for _, r := range registry {
			if (r.library == nil) == (r.attach == nil) {
				t.Errorf("source %s is not either of a process or of all processes", r.name)
			}
			if r.library == nil {
				continue
			}

			s := r.library(new(Libraries), LibraryOptions{}).Status()
			i := slices.IndexFunc(l.Statuses(), func(of Status) bool { return of.Name == r.name })
			if s.Name != r.name || i < 0 || l.Statuses()[i].Off == wanted {
				t.Errorf("source %s, wanted %t: %+v of %+v", r.name, wanted, s, l.Statuses())
			}
		}
	}
}

// The unwinder may have older mappings than Attach gets.
func TestLibrariesAttach(t *testing.T) {
	l := NewLibraries(LibraryOptions{Wants: func(name string) bool { return name == "cuda" }})
	l.Update(executables("/usr/lib/libcudart.so.12"))
	if l.GPU.UsesGPU() {
		t.Error("updated before it was attached")
	}
}

// TestForget fails where a map by process is in no forget: the next process with the PID would have
// its entries.
func TestForget(t *testing.T) {
	tracertest.NeedsRoot(t)
	spec := tracertest.Must(bpf.LoadKernel())(t)
	k := tracertest.Must(kernel.Load(kernel.Config{MaxLive: 16, MaxStacks: 16, MaxFaults: 16}))(t)
	defer k.Close()

	const gone, other = 1 << 22, 1<<22 + 1
	byProcess := make(map[string]*ebpf.Map)
	maps := reflect.ValueOf(k.Maps)
	for i := range maps.NumField() {
		name := maps.Type().Field(i).Tag.Get("ebpf")
		key, isStruct := spec.Maps[name].Key.(*btf.Struct)
		if !isStruct {
			continue
		}
		for _, member := range key.Members {
			if member.Name != "tgid" {
				continue
			}

			m := maps.Field(i).Interface().(*ebpf.Map)
			byProcess[name] = m
			for _, tgid := range []uint32{gone, other} {
				entry, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
				binary.NativeEndian.PutUint32(entry[member.Offset.Bytes():], tgid)
				binary.NativeEndian.PutUint32(value, tgid) // of reported_codes
				if err := m.Put(entry, value); err != nil {
					t.Fatalf("put into %s: %v", name, err)
				}
			}
		}
	}
	if len(byProcess) < 9 {
		t.Errorf("only %d maps by process", len(byProcess))
	}

	tracertest.NoError(t, Forget(k, gone))
	for name, m := range byProcess {
		left, key, value := 0, make([]byte, m.KeySize()), make([]byte, m.ValueSize())
		for entries := m.Iterate(); entries.Next(&key, &value); left++ {
		}
		if left != 1 {
			t.Errorf("map %s has %d entries, want one of the other process", name, left)
		}
	}
}

func TestLibraryCheck(t *testing.T) {
	const maxFiles = 3
	var found []string
	l := newLibrary(nil, nil, "test", "no library", maxFiles)
	check := func(maps []process.Mapping, done bool) []string {
		found = nil
		l.check(maps, func(m process.Mapping) bool {
			found = append(found, m.Path)
			return done
		})
		return found
	}

	files := executables("/a", "/b", "/c", "/d")
	anonymous := process.Mapping{Execute: true}
	data := process.Mapping{Path: "/data", Inode: 9}
	first := slices.Concat([]process.Mapping{anonymous, data}, files[:2], files[:1])

	for _, step := range []struct {
		name string
		maps []process.Mapping
		done bool
		want []string
	}{
		{"not done", files[:2], false, []string{"/a", "/b"}},
		{"executable files, once", first, true, []string{"/a", "/b"}},
		{"new file", files[:3], true, []string{"/c"}},
		{"too many files", files, true, nil},
	} {
		if got := check(step.maps, step.done); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}

	clear(l.checked)
	l.enter(closed)
	if got := check(files, true); len(got) > 0 {
		t.Errorf("closed: %q", got)
	}
}

func TestLibraryStates(t *testing.T) {
	for _, final := range []state{refused, off, closed} {
		l := newLibrary(nil, nil, "test", "no library", 1)
		for _, next := range []state{attached, paused, waiting, final, attached, paused} {
			l.enter(next)
		}
		if !l.is(final) {
			t.Errorf("state %d, want %d", l.state, final)
		}
	}

	l := newLibrary(nil, nil, "test", "no library", 1)
	l.TurnOff()
	if s := l.Status(); s.Name != "test" || !s.Off || s.Reason != "" {
		t.Errorf("off: %+v", s)
	}
}

// Tensors without a library need no kernel, so that all ways between states can be gone.
func TestTensorsStates(t *testing.T) {
	s := NewTensors(nil, nil)
	attach := func(s *Tensors) error { s.enter(attached); return nil }
	for _, step := range []struct {
		name                      string
		do                        func(*Tensors) error
		active, complete, pending bool
	}{
		{"paused before the library is found", (*Tensors).Pause, false, false, true},
		{"opened", (*Tensors).Open, false, false, true},
		{"attached", attach, true, true, true},
		{"paused", (*Tensors).Pause, false, false, true},
		{"attached after a gap", attach, true, false, true},
		{"shut down", (*Tensors).Close, false, false, false},
		{"opened after shutdown", (*Tensors).Open, false, false, false},
	} {
		tracertest.NoError(t, step.do(s))
		active, complete, pending := s.Active(), s.Complete(), s.Pending()
		if active != step.active || complete != step.complete || pending != step.pending {
			t.Errorf("%s: active %t, complete %t, pending %t, want %t, %t, %t", step.name,
				active, complete, pending, step.active, step.complete, step.pending)
		}
	}
}

func TestTensorsStatus(t *testing.T) {
	s := NewTensors(nil, nil)
	got := s.Status()
	if got.Attached || got.Err != nil || got.Failure().Reason != growth.SourceNotMapped {
		t.Errorf("new: %+v", got)
	}

	cause := errors.New("refused")
	s.report(cause)
	got = s.Status()
	want := growth.SourceFailure{Reason: growth.SourceOther, Detail: "refused"}
	if got.Attached || got.Failure() != want || !errors.Is(got.Err, cause) || s.Pending() {
		t.Errorf("refused: %+v", got)
	}

	s.report(nil)
	if got := s.Status(); !got.Attached || got.Failure() != (growth.SourceFailure{}) || got.Err != nil {
		t.Errorf("attached: %+v", got)
	}
}

func TestGPUStatus(t *testing.T) {
	const notMapped = "CUDA's driver (libcuda.so.1) is not mapped"
	g := NewGPU(nil, nil)
	if s := g.Status(); s.Attached || s.Reason != notMapped || !g.Pending() {
		t.Errorf("no GPU: %+v", s)
	}
	if g.ShouldReport(false) {
		t.Error("source cuda of a process without a GPU is reported")
	}
	if !g.ShouldReport(true) {
		t.Error("source cuda alone is not reported")
	}

	g.usesGPU = true
	g.enterBlocks(attached)
	if s := g.Status(); !s.Attached || s.Reason != "" || !g.ShouldReport(false) {
		t.Errorf("blocks attached: %+v", s)
	}
	for _, reason := range []string{"first", "second"} {
		g.reportError(errors.New(reason))
	}
	g.enterBlocks(refused)
	g.attachBlocks()
	if s := g.Status(); s.Attached || s.Reason != "first; second" || s.Err == nil {
		t.Errorf("refused: %+v", s)
	}
	tracertest.NoError(t, g.FollowBlocks(false))
	if !g.wantsTotals() {
		t.Error("refused, then not followed: the totals of blocks are not sampled")
	}

	tracertest.NoError(t, g.Close())
	if s := g.Status(); !s.Off || g.Pending() {
		t.Errorf("shut down with nothing found: %+v", s)
	}
}

func TestGPUBlockBursts(t *testing.T) {
	g := NewGPU(nil, nil)
	tracertest.NoError(t, g.FollowBlocks(true))
	g.usesGPU, g.blockFiles = true, make([]probe.FileSites, 1)
	g.enterBlocks(attached)

	tracertest.NoError(t, g.PauseBlocks())
	if _, complete := g.Active(); !complete || !g.wantsTotals() {
		t.Error("between two bursts blocks are given up, or their totals are")
	}
	g.status.Attached = true
	if s := g.Status(); s.Gap != growth.GapBlockBursts {
		t.Errorf("%+v", s)
	}

	g.enterBlocks(attached)
	if s := g.Status(); s.Gap != growth.GapBlockBursts || g.wantsTotals() {
		t.Errorf("in a burst: %+v", s)
	}

	tracertest.NoError(t, g.FollowBlocks(false))
	tracertest.NoError(t, g.PauseBlocks())
	if _, complete := g.Active(); complete || g.Status().Gap != growth.GapBlocks {
		t.Errorf("given up: %+v", g.Status())
	}
}

func TestGPUBlocks(t *testing.T) {
	for _, c := range []struct {
		name     string
		follow   []bool
		complete bool
	}{
		{"followed from the start", []bool{true}, true},
		{"never followed", nil, false},
		{"given up", []bool{true, false}, false},
		{"followed again", []bool{true, false, true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewGPU(nil, nil)
			for _, follow := range c.follow {
				tracertest.NoError(t, g.FollowBlocks(follow))
				if g.blocks == waiting {
					g.enterBlocks(attached) // as Update does once it has found a function
				}
			}
			if _, complete := g.Active(); complete != c.complete {
				t.Errorf("complete: %t, want %t", complete, c.complete)
			}
		})
	}
}

func TestStepsStatus(t *testing.T) {
	for _, c := range []struct{ name, symbol, reason string }{
		{"PyTorch", "", "no library libtorch_cpu is mapped"},
		{"unprintable", "lib\x1bx:step", "no library lib?x is mapped"},
		{"no function", "libx", "not of the form LIB:SYMBOL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewSteps(nil, nil, c.symbol)
			s.Update(executables("/lib/libc.so.6"))
			got := s.Status()
			isNotMapped := got.Failure().Reason == growth.SourceNotMapped
			if got.Attached || !strings.Contains(got.Reason, c.reason) || isNotMapped == (got.Err != nil) ||
				s.ShouldReport(false) != (c.symbol != "") {
				t.Errorf("%+v, want %q", got, c.reason)
			}
			if len(s.checked) > 0 || s.Count() != growth.Unknown {
				t.Errorf("%d files are checked, %d steps counted", len(s.checked), s.Count())
			}
		})
	}
}

func TestFaultPeriod(t *testing.T) {
	for interval, want := range map[uint64]uint64{
		0: 1, 1: 1, 4096: 1, 8192: 2, 64 << 10: 17, 512 << 10: 131, kernel.MaxInterval: 262_147,
	} {
		if got := FaultPeriod(interval); got != want {
			t.Errorf("at %d bytes: one in %d, want %d", interval, got, want)
		}
	}
}

func TestEventRemedy(t *testing.T) {
	for err, want := range map[error]string{
		unix.EPERM:  " (run as root or grant CAP_PERFMON",
		unix.EMFILE: " (raise the limit",
		unix.EIO:    "",
	} {
		got := WithRemedy(EventRemedy(err))
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
