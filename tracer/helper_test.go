package tracer_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
	"github.com/allocscope/allocscope/tracer/unwind"
)

func TestMain(m *testing.M) {
	// No budget runs out on a busy machine, or an emulated one.
	duty.ExtraAdvance = time.Hour
	unwind.BuildOnce = true
	tracertest.Main(m)
}

var must = tracertest.NoError

// scan reads a line of a program by its format.
func scan(t testing.TB, said, format string, values ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(said, format, values...); err != nil {
		t.Fatalf("%q is not of the form %q: %v", said, format, err)
	}
}

// open starts a trace that ends with the test. Stacks are whole from the start.
func open(t testing.TB, options tracer.Options) *tracer.Session {
	t.Helper()
	tracertest.NeedsRoot(t)
	s := tracertest.Must(tracer.Open(t.Context(), options))(t)
	t.Cleanup(func() { must(t, s.Close()) })

	awaitTables(s)
	return s
}

// exact are the options of a trace that takes every object, and exactHeap of one with source heap
// alone. To verify the programs of the other sources takes the kernel half of a session's CPU time.
var (
	exact     = tracer.Options{Interval: 1}
	exactHeap = tracer.Options{Interval: 1, Sources: heapAlone}
	heapAlone = []string{"heap"}
)

// openOn opens a trace of a program.
func openOn[Program interface{ PID() int }](
	t testing.TB, program Program, options tracer.Options,
) (Program, *tracer.Session) {
	t.Helper()
	options.PID = program.PID()
	return program, open(t, options)
}

func snapshot(t testing.TB, s *tracer.Session) *growth.Snapshot {
	t.Helper()
	snapshot := tracertest.Must(s.Snapshot())(t)
	return snapshot
}

// held returns the memory of the allocator's callers, by function: objects and bytes.
func held(snapshot *growth.Snapshot) amounts { return heldAt(snapshot, 1) }

// heldAt is held for stacks in which the caller is such a frame.
func heldAt(snapshot *growth.Snapshot, frame int) amounts {
	sums := make(amounts)
	for _, h := range snapshot.Holdings {
		if h.Kind != growth.KindHeap || h.InuseObjects == 0 {
			continue
		}

		name := "?"
		if len(h.Stack.Frames) > frame {
			name = h.Stack.Frames[frame].Function
		}
		sums.add(name, int64(h.InuseObjects), h.InuseBytes)
	}
	return sums
}

// mustHold compares with the lines NAME OBJECTS BYTES that the target reports. Its other functions
// hold nothing.
func mustHold(t testing.TB, got amounts, truth []string) {
	t.Helper()
	for _, line := range truth {
		var name string
		var objects, bytes int64
		scan(t, line, "%s %d %d", &name, &objects, &bytes)
		mustHoldIn(t, got, name, objects, bytes)

		delete(got, name)
	}
	for name, holds := range got {
		if strings.HasPrefix(name, "case_") || strings.HasPrefix(name, "base_") {
			t.Errorf("%s holds %d, want nothing", name, holds)
		}
	}
}

// mustHoldIn checks the memory of one function.
func mustHoldIn(t testing.TB, got amounts, name string, objects, bytes int64) {
	t.Helper()
	if want := [2]int64{objects, bytes}; got[name] != want {
		t.Errorf("%s holds %d, want %d (objects, bytes)", name, got[name], want)
	}
}

func counters(t testing.TB, s *tracer.Session) (growth.Events, []growth.Loss) {
	t.Helper()
	events, losses, err := s.Counters()
	must(t, err)
	return events, losses
}

// mustLoseNothing accepts mapping calls that took the last stack of their site.
func mustLoseNothing(t testing.TB, s *tracer.Session) growth.Events {
	t.Helper()
	return mustLoseOnly(t, s, growth.LossSiteStacks)
}

func mustLoseOnly(t testing.TB, s *tracer.Session, kinds ...growth.LossKind) growth.Events {
	t.Helper()
	events, losses := counters(t, s)
	for _, l := range losses {
		if !slices.Contains(kinds, l.Kind) {
			t.Errorf("lost: %+v", l)
		}
	}
	return events
}

var modes = []probe.Mode{probe.Session, probe.Multi, probe.Single}

// eachMode runs a test in every mode that this kernel has.
func eachMode(t *testing.T, test func(t *testing.T, mode probe.Mode)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) { test(t, mode) })
	}
}

// A job is a shell that has started ranks, each the program of steps.c.
type job struct {
	*tracertest.Target
	ranks []*rank
}

// A rank takes its orders through a pipe in the file system.
type rank struct {
	t     testing.TB
	pid   int
	input *os.File
	lines *bufio.Scanner
}

func startJob(t testing.TB, ranks int) *job {
	t.Helper()
	dir := t.TempDir()
	script := "program=" + tracertest.Build(t, "steps.c") + "\n"
	var pipes [][2]*os.File
	for i := range ranks {
		in, out := fmt.Sprintf("%s/in%d", dir, i), fmt.Sprintf("%s/out%d", dir, i)
		pipes = append(pipes, [2]*os.File{fifo(t, in), fifo(t, out)})
		script += fmt.Sprintf("RANK=%d LOCAL_RANK=%[1]d WORLD_SIZE=%d $program <%s >%s & echo $!\n", i,
			ranks, in, out)
	}

	j := &job{Target: tracertest.StartCommand(t,
		exec.Command("/bin/sh", "-c", script+"echo ready; read line; wait"))}
	for i, line := range j.Await("ready") {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatalf("%q is no PID", line)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		r := &rank{t, pid, pipes[i][0], bufio.NewScanner(pipes[i][1])}
		r.await("ready")
		j.ranks = append(j.ranks, r)
	}
	return j
}

func fifo(t testing.TB, path string) *os.File {
	t.Helper()
	must(t, syscall.Mkfifo(path, 0o600))

	f, err := os.OpenFile(path, os.O_RDWR, 0) // which does not wait for a writer
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func (r *rank) await(word string) {
	r.t.Helper()
	if !r.lines.Scan() || r.lines.Text() != word {
		r.t.Fatalf("PID %d said %q, want %q", r.pid, r.lines.Text(), word)
	}
}

func (r *rank) order(format string, arguments ...any) {
	r.t.Helper()
	_, err := fmt.Fprintf(r.input, format+"\n", arguments...)
	must(r.t, err)
	r.await("done")
}

func traceJob(t testing.TB, j *job, interval uint64) *tracer.Session {
	t.Helper()
	s := open(t, tracer.Options{PID: j.PID(), Interval: interval, Children: true})
	for _, r := range j.ranks {
		followUntilTraced(t, s, r.pid)
	}
	return s
}

func start(t testing.TB, path string, arguments ...string) *tracertest.Target {
	t.Helper()
	return startCommand(t, exec.Command(path, arguments...))
}

func startCommand(t testing.TB, command *exec.Cmd) *tracertest.Target {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return target
}

// preloading makes a command load libraries before all others.
func preloading(libraries string, command *exec.Cmd) *exec.Cmd {
	command.Env = append(os.Environ(), "LD_PRELOAD="+libraries)
	return command
}

func sourceOf(t testing.TB, s *tracer.Session, name string) source.Status {
	t.Helper()
	for _, source := range s.Sources() {
		if source.Name == name {
			return source
		}
	}
	t.Fatalf("no source %s in %+v", name, s.Sources())
	return source.Status{}
}

func functions(s *growth.Stack) []string {
	names := make([]string, len(s.Frames))
	for i, f := range s.Frames {
		names[i] = f.Function
	}
	return names
}

func startSteps(t testing.TB, flags ...string) *tracertest.Target {
	t.Helper()
	return start(t, tracertest.Build(t, "steps.c", flags...))
}

func order(target *tracertest.Target, format string, arguments ...any) []string {
	return target.Do(fmt.Sprintf(format, arguments...))
}

func end(t testing.TB, s *tracer.Session, target *tracertest.Target) {
	t.Helper()
	target.Hangup()
	eventually(t, "the end is noticed", func() bool { return !s.IsTraced(target.PID()) })
}

var eventually = tracertest.Eventually

func descriptors(t testing.TB) int {
	t.Helper()
	names := tracertest.Must(os.ReadDir("/proc/self/fd"))(t)
	return len(names)
}

// settledDescriptors returns the number of open descriptors once it stays: a target's first mappings
// are published while the session goes on, with a descriptor until then.
func settledDescriptors(t testing.TB) int {
	t.Helper()
	const quiet, most = 300 * time.Millisecond, 30 * time.Second
	began := time.Now()
	last, since := descriptors(t), began
	for time.Since(since) < quiet && time.Since(began) < most {
		time.Sleep(10 * time.Millisecond)
		if now := descriptors(t); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

func isAttached(s *tracer.Session, name string) bool {
	return slices.ContainsFunc(s.Sources(),
		func(source source.Status) bool { return source.Name == name && source.Attached })
}

// caller is the innermost function of a stack that is in the program itself.
func caller(stack *growth.Stack, program string) string {
	for _, f := range stack.Frames {
		isReplaced := f.Function == "mmap" // by tcmalloc that is linked in
		if f.Module != nil && filepath.Base(f.Module.Path) == filepath.Base(program) && !isReplaced {
			return f.Function
		}
	}
	if len(stack.Frames) > 0 {
		return stack.Frames[0].Function
	}
	return "?"
}

// lineWith is the number of the line of a file of testdata that ends in a comment.
func lineWith(t *testing.T, file, comment string) int {
	t.Helper()
	raw := tracertest.Must(os.ReadFile(tracertest.Source(file)))(t)

	before, _, ok := strings.Cut(string(raw), "# "+comment+"\n")
	if !ok {
		t.Fatalf("no line ends in %q", comment)
	}
	return strings.Count(before, "\n") + 1
}

func copied(t *testing.T, library, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	copyFile(t, library, path)
	return path
}

// copyFile also makes the folders above the copy.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	content := tracertest.Must(os.ReadFile(from))(t)
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	must(t, os.WriteFile(to, content, 0o755))
}

// buildCommand builds allocscope.
func buildCommand(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "allocscope")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", path, "../cmd/allocscope")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// python is the distribution's, for which apt has torch.
const python = "/usr/bin/python3"

// A trainer is a real one: testdata/train.py with torch.
type trainer struct{ *tracertest.Target }

func startTrainer(t testing.TB, arguments ...string) trainer {
	t.Helper()
	tracertest.NeedsRoot(t)
	arguments = append([]string{tracertest.Source("train.py")}, arguments...)
	target := start(t, python, arguments...)
	return trainer{target}
}

// train runs so many steps and calls meanwhile while they are under way. It returns their losses.
func (g trainer) train(steps int, meanwhile func()) []string {
	g.Say(strconv.Itoa(steps))
	meanwhile()
	return g.Await("done")
}

func nothing() {}

// awaitTables waits until the files that are mapped now have their unwind tables.
func awaitTables(s *tracer.Session) { tracer.Tables(s).Wait(context.Background(), 5*time.Minute) }

func openProcess(t testing.TB, pid int) *process.Process {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

func mapsOf(t testing.TB, pid int) []process.Mapping {
	t.Helper()
	p := openProcess(t, pid)
	defer p.Close()
	maps := tracertest.Must(p.Maps())(t)
	return maps
}

func attach(s *tracer.Session, pid int) error {
	p, err := process.Open(pid)
	if err != nil {
		return err
	}
	defer p.Close()
	return tracer.Attach(s, p, nil)
}

func mustAttach(t testing.TB, s *tracer.Session, pid int) {
	t.Helper()
	must(t, attach(s, pid))
}

func mustDetach(t testing.TB, s *tracer.Session, pid int) {
	t.Helper()
	must(t, tracer.Detach(s, pid))
}

func openBurst(t testing.TB, s *tracer.Session) {
	t.Helper()
	must(t, tracer.Probing(s).OpenHeap(true, 1))
}

func closeHeap(t testing.TB, s *tracer.Session) {
	t.Helper()
	must(t, tracer.Probing(s).CloseHeap())
}

// counted has the counts of the BPF programs since tracing started.
func counted(t testing.TB, s *tracer.Session, what bpf.Counter) uint64 {
	t.Helper()
	values := tracertest.Must(kernel.ReadCounters(tracer.Kernel(s).Counters))(t)
	return values[what]
}

func entriesOf(t testing.TB, m *ebpf.Map) (n int) {
	t.Helper()
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	all := m.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	return n
}
