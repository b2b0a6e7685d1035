package tracer_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestPython compares Python frames with the interpreter's own report.
func TestPython(t *testing.T) {
	t.Run("frames of every interpreter", testPythonFramesInterpreter)
	t.Run("some frames of unusual interpreters", testPythonFramesUnusual)
	t.Run("frames of greenlets", testPythonFramesGreenlets)
	t.Run("PyPy", testPythonPyPy)
	t.Run("program that is linked with Python", testPythonProgramLinked)
	t.Run("program that loads Python while it is traced", testPythonProgramLoadsPython)
}

// runArgument makes python3 -c run the program that is its first argument. An interpreter in a root
// folder of its own sees no file of ours.
const runArgument = `import sys; exec(compile(sys.argv[1], "frames.py", "exec"))`

func frames(t *testing.T, python ...string) *exec.Cmd {
	t.Helper()
	source := tracertest.Must(os.ReadFile(tracertest.Source("frames.py")))(t)
	return exec.Command(python[0], append(python[1:], "-c", runArgument, string(source))...)
}

func skipMissing(t *testing.T, python tracertest.Interpreter) {
	t.Helper()
	if python.Missing != "" {
		t.Skip(python.Missing)
	}
}

func testPythonFramesInterpreter(t *testing.T) {
	t.Parallel()
	pythons := tracertest.AllInterpreters(t, "minors")
	if os.Getenv(unusualToo) == "all" {
		pythons = append(tracertest.AllInterpreters(t), unusual(t)...)
	}
	for _, python := range pythons {
		t.Run(python.Name, func(t *testing.T) {
			skipMissing(t, python)
			target, s := openOn(t, startCommand(t, frames(t, python.Command...)), exactHeap)
			if !strings.HasPrefix(python.Name, "free-threaded") {
				mustAgreeWithInterpreter(t, target, s)
				return
			}
			// Other threads may own the objects of a thread's last frame: then it allocates when
			// that frame is no longer in the thread's list.
			mustAgreeInCases(t, target, s, manyCases, growth.LossSiteStacks, growth.LossPythonFrames)
		})
	}
}

// manyCases is the least number of cases of all functions of frames.py.
const manyCases = 200

// unusualToo is the variable that makes all frames of all interpreters be compared, of the unusual
// ones, too.
const unusualToo = "ALLOCSCOPE_INTERPRETERS"

// unusual returns the unusual interpreters of CPython.
func unusual(t *testing.T) []tracertest.Interpreter {
	t.Helper()
	return slices.DeleteFunc(tracertest.AllInterpreters(t, "unusual"),
		func(python tracertest.Interpreter) bool { return strings.HasPrefix(python.Name, "pypy") })
}

// someCases are functions of frames.py: of calls, generators and threads.
var someCases = []string{"plain_function", "methods", "generators", "threads"}

// testPythonFramesUnusual compares a few cases.
func testPythonFramesUnusual(t *testing.T) {
	t.Parallel()
	for _, python := range unusual(t) {
		t.Run(python.Name, func(t *testing.T) {
			skipMissing(t, python)
			target, s := openOn(t, startCases(t, python.Command, someCases...), exactHeap)
			mustAgreeInCases(t, target, s, 30, growth.LossSiteStacks)
		})
	}
}

// testPythonFramesGreenlets compares stacks that take each other's place. A greenlet that begins or
// ends has no Python frames for a moment.
func testPythonFramesGreenlets(t *testing.T) {
	t.Parallel()
	for _, python := range tracertest.AllInterpreters(t) {
		if python.Name != "debian-trixie" {
			continue
		}
		skipMissing(t, python)
		target, s := openOn(t, startCases(t, python.Command, "in_greenlets", "in_gevent"), exactHeap)
		mustAgreeInCases(t, target, s, 8, growth.LossSiteStacks, growth.LossPythonFrames)
	}
}

// startCases starts frames.py for some of its functions.
func startCases(t *testing.T, python []string, functions ...string) *tracertest.Target {
	t.Helper()
	command := frames(t, python...)
	command.Args = append(command.Args, functions...)
	return startCommand(t, command)
}

// testPythonPyPy traces PyPy with native frames alone, and says so.
func testPythonPyPy(t *testing.T) {
	t.Parallel()
	for _, python := range tracertest.AllInterpreters(t, "unusual") {
		if !strings.HasPrefix(python.Name, "pypy") {
			continue
		}
		skipMissing(t, python)
		words := append(python.Command, "-c", "print('ready', flush=True); input()")
		_, s := openOn(t, startCommand(t, exec.Command(words[0], words[1:]...)), exactHeap)
		for _, status := range s.Sources() {
			if status.Name == "python" && !status.Attached &&
				strings.HasSuffix(status.Reason, "PyPy (only frames of CPython can be read)") {
				return
			}
		}
		t.Errorf("%+v", s.Sources())
	}
}

// newestLibrary returns the libpython of pyenv's newest version, and the folder of that version.
func newestLibrary(t *testing.T) (library, home string) {
	t.Helper()
	for _, python := range tracertest.AllInterpreters(t) {
		if !strings.HasPrefix(python.Name, "pyenv-") || python.Missing != "" {
			continue
		}

		folder := filepath.Dir(filepath.Dir(python.Command[0]))
		found, err := filepath.Glob(filepath.Join(folder, "lib", "libpython3.*.so.1.0"))
		must(t, err)
		if len(found) == 1 {
			library, home = found[0], folder // sorted by version
		}
	}

	if library == "" {
		t.Skip("no pyenv version that was built with --enable-shared: no libpython to embed")
	}
	return library, home
}

func testPythonProgramLinked(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("/usr/lib/python3.*/config-*/libpython3.*[0-9].a")
	if err != nil || len(found) == 0 {
		t.Skip("no libpython to link (apt-get install libpython3-dev)")
	}
	program := tracertest.Build(t, "embed.c", "-no-pie", "-rdynamic", found[0], "-lm", "-lz", "-lexpat")
	target, s := openOn(t, startCases(t, []string{program}, someCases...), exactHeap)
	mustAgreeInCases(t, target, s, 30, growth.LossSiteStacks)
}

func testPythonProgramLoadsPython(t *testing.T) {
	library, home := newestLibrary(t)
	command := frames(t, tracertest.Build(t, "embed.c", fmt.Sprintf("-DLIBRARY=%q", library)))
	command.Env = append(os.Environ(), "PYTHONHOME="+home)
	target, s := openOn(t, startCommand(t, command), exact)
	target.Say("load")
	target.Await("ready")
	mustAgreeWithInterpreter(t, target, s)
}

type pythonFrame struct {
	Function, File  string
	Line, StartLine int
}

func (f pythonFrame) String() string {
	return fmt.Sprintf("%s (%s:%d, from %d on)", f.Function, f.File, f.Line, f.StartLine)
}

// A pythonBlock is a block of frames.py: of which case, how large, and where it was allocated, leaf
// first.
type pythonBlock struct {
	Case   string
	Size   int64
	Frames []pythonFrame
}

// blockSpacing separates the sizes of two cases. A block takes some bytes more than was asked for.
const blockSpacing = 16

// pythonStacks counts blocks by their size, and by the Python frames at which they were allocated,
// as lines.
type pythonStacks map[int64]map[string]int

func (p pythonStacks) add(size int64, frames []pythonFrame, mark string, blocks int) {
	size -= size % blockSpacing
	if p[size] == nil {
		p[size] = make(map[string]int)
	}
	var text strings.Builder
	for _, f := range frames {
		fmt.Fprintln(&text, f)
	}
	p[size][text.String()+mark] += blocks
}

// mustAgreeWithInterpreter runs the cases of frames.py and compares the Python frames of each with
// the program's report.
func mustAgreeWithInterpreter(t *testing.T, target *tracertest.Target, s *tracer.Session) {
	t.Helper()
	mustAgreeInCases(t, target, s, manyCases, growth.LossSiteStacks)
}

// mustAgreeInCases is mustAgreeWithInterpreter where there are at least so many cases. Some losses
// are none of a case's stack.
func mustAgreeInCases(
	t *testing.T, target *tracertest.Target, s *tracer.Session, least int, but ...growth.LossKind,
) {
	t.Helper()
	settle(t, target, s, but)
	before := losses(t, s, but)
	want, names := make(pythonStacks), make(map[int64]string)
	for _, line := range target.Do("go") {
		var b pythonBlock
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			t.Fatalf("%q: %v", line, err)
		}

		want.add(b.Size, b.Frames, "", 1)
		names[b.Size] = b.Case
	}
	if len(names) < least {
		t.Fatalf("%d cases: the test is wrong", len(names))
	}

	got := tracedStacks(snapshot(t, s))
	for _, size := range slices.Sorted(maps.Keys(names)) {
		name := names[size]
		t.Run(name, func(t *testing.T) { mustBeSameStacks(t, got[size], want[size], comparison(name)) })
	}

	for reason, n := range losses(t, s, but) {
		if n > before[reason] {
			t.Errorf("lost: %d %s", n-before[reason], reason)
		}
	}
}

// losses by reason, but for some kinds.
func losses(t *testing.T, s *tracer.Session, but []growth.LossKind) map[string]uint64 {
	t.Helper()
	_, list := counters(t, s)
	counts := make(map[string]uint64)
	for _, l := range list {
		if !slices.Contains(but, l.Kind) {
			counts[string(l.Kind)+" "+l.Cause.String()] += l.Count
		}
	}
	return counts
}

// settle returns once a run of all cases loses nothing: the tracer knows all their code.
func settle(t *testing.T, target *tracertest.Target, s *tracer.Session, but []growth.LossKind) {
	t.Helper()
	const most = 30
	before := losses(t, s, but)
	for range most {
		target.Say("again")
		target.Await("again")
		now := losses(t, s, but)
		if fmt.Sprint(now) == fmt.Sprint(before) {
			return
		}

		before = now
	}
	t.Errorf("the %dth run of the cases still loses something: %v", most, before)
}

// tracedStacks returns the Python frames of live objects, by size. Truncated stacks end with the
// reason.
func tracedStacks(snapshot *growth.Snapshot) pythonStacks {
	got := make(pythonStacks)
	for _, h := range snapshot.Holdings {
		if h.Kind != growth.KindHeap || h.InuseObjects == 0 {
			continue
		}

		var frames []pythonFrame
		for _, f := range h.Stack.Frames {
			if f.Python || f.Function == growth.FramesLeftOut {
				frames = append(frames, pythonFrame{f.Function, f.File, f.Line, f.StartLine})
			}
		}

		mark := ""
		if h.Stack.Truncated != "" {
			mark = cutMark + h.Stack.Truncated
		}
		if len(frames) == 0 && mark == "" {
			// memory of the C library or the linker may have such a size, too; if it is a case's,
			// that one lacks it
			continue
		}

		got.add(h.InuseBytes/int64(h.InuseObjects), frames, mark, int(h.InuseObjects))
	}
	return got
}

const cutMark = "cut: "

// mustBeSameStacks compares the stacks of one case, each with the number of its blocks.
func mustBeSameStacks(t *testing.T, got, want map[string]int, isSame func(got, want string) bool) {
	t.Helper()
	sums := make(map[string]int)
	for stack, blocks := range got {
		for whole := range want {
			if isSame(stack, whole) {
				stack = whole
				break
			}
		}

		sums[stack] += blocks
	}
	for stack, blocks := range sums {
		if want[stack] != blocks {
			t.Errorf("%d blocks, want %d, at\n%s", blocks, want[stack], stack)
		}
	}

	for stack, blocks := range want {
		if sums[stack] == 0 {
			t.Errorf("no blocks, want %d, at\n%s", blocks, stack)
		}
	}
}

// comparison returns how the stacks of a case are compared with the interpreter's.
func comparison(name string) func(got, want string) bool {
	switch {
	case name == "deep recursion":
		return isSameButForMiddle
	case strings.HasPrefix(name, "short-lived code"):
		return isSameButForTheGone
	}
	return func(got, want string) bool { return got == want }
}

// isSameButForMiddle compares a stack that lacks its middle. Up to
// Python 3.10 each call takes native frames, so that there is room for fewer of Python.
func isSameButForMiddle(got, want string) bool {
	const least = 25 // frames that there is always room for at either end
	marker := pythonFrame{Function: growth.FramesLeftOut}.String() + "\n"
	leaf, root, isShortened := strings.Cut(got, marker)
	return isShortened && strings.HasPrefix(want, leaf) && strings.HasSuffix(want, root) &&
		strings.Count(leaf, "\n") >= least && strings.Count(root, "\n") >= least
}

// isSameButForTheGone also accepts frames whose code was gone before it could be read.
func isSameButForTheGone(got, want string) bool {
	frames, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")
	return slices.EqualFunc(frames, wanted, func(got, want string) bool {
		return got == want || strings.HasPrefix(got, "[Python code that was gone")
	})
}
