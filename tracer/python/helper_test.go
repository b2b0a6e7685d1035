package python

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// interpreterCommands returns the commands that run each Python of this machine, by name. An
// interpreter that is not available is absent.
func interpreterCommands(t testing.TB) map[string][]string {
	t.Helper()
	out, err := exec.Command("sh", tracertest.Source("interpreters.sh")).Output()
	if err != nil {
		t.Fatalf("list interpreters: %v", err)
	}

	commands := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		name, command, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if reason, missing := strings.CutPrefix(command, "missing: "); missing {
			t.Logf("without %s: %s", name, reason)
			continue
		}

		commands[name] = strings.Fields(command)
	}

	if len(commands) == 0 {
		t.Fatal("no Python at all (apt-get install python3)")
	}

	return commands
}

// library returns the shared library of an interpreter and its home, empty if it has none.
func library(t testing.TB, command []string) (path, home string) {
	t.Helper()
	const print = "import sys, sysconfig; v = sysconfig.get_config_var; " +
		"print(v('LIBDIR') + '/' + v('LDLIBRARY')); print(sys.base_prefix)"
	out := runTool(t, command[0], append(command[1:], "-c", print)...)
	path, home, _ = strings.Cut(strings.TrimSpace(out), "\n")
	if len(command) > 1 || filepath.Ext(path) != ".so" {
		return "", ""
	}

	return path, home
}

// A shownFrame is a frame as the interpreter shows it.
type shownFrame struct {
	Name        string
	Code        uint64
	Instruction int // offset in the bytecode, bytes; -1: has gone on since
}

func (f *shownFrame) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&f.Name, &f.Code, &f.Instruction})
}

// A shownThread is a thread with its frames, innermost first.
type shownThread struct {
	Key    uint64
	Frames []shownFrame
}

// A report is the output of testdata/frames.py.
type report struct {
	Threads []shownThread
	Sub     []shownFrame // of the sub-interpreter
	Version string
}

// startFrames runs frames.py by a command whose last argument it becomes, until all threads wait.
func startFrames(t testing.TB, command ...string) (*process.Process, report) {
	return startFramesIn(t, nil, command...)
}

func startFramesIn(t testing.TB, env []string, command ...string) (*process.Process, report) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "frames.py"))
	if err != nil {
		t.Fatal(err)
	}

	program := exec.Command(command[0], append(command[1:], string(source))...)
	if env != nil {
		program.Env = append(os.Environ(), env...)
	}

	target := tracertest.StartCommand(t, program)
	started := target.Await("started")
	threads, err := strconv.Atoi(started[len(started)-1])
	if err != nil {
		t.Fatal(err)
	}

	awaitReads(target.PID(), threads+1)

	target.Say("report")
	var r report
	if err := json.Unmarshal([]byte(target.Await("reported")[0]), &r); err != nil {
		t.Fatal(err)
	}

	awaitReads(target.PID(), threads+1)
	return openProcess(t, target.PID()), r
}

// awaitReads waits until that many threads of a process are inside read(2).
func awaitReads(pid, threads int) {
	const readCall = "0" // on x86-64
	for reading := 0; reading != threads; runtime.Gosched() {
		reading = 0
		calls, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/syscall")
		for _, call := range calls {
			raw, err := os.ReadFile(call)
			if number, _, _ := strings.Cut(string(raw), " "); err == nil && number == readCall {
				reading++
			}
		}
	}
}

// startReady runs a program that prints "ready".
func startReady(t testing.TB, command ...string) *process.Process {
	t.Helper()
	target := tracertest.StartCommand(t, exec.Command(command[0], command[1:]...))
	target.Await("ready")
	return openProcess(t, target.PID())
}

func openProcess(t testing.TB, pid int) *process.Process {
	t.Helper()
	p, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// find is Find on the current mappings.
func find(t testing.TB, p *process.Process) (*Interpreter, error) {
	t.Helper()
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}

	return Find(p, maps)
}

func mustFind(t testing.TB, p *process.Process) *Interpreter {
	t.Helper()
	found, err := find(t, p)
	if err != nil || found == nil {
		t.Fatalf("Find = %+v, %v", found, err)
	}

	return found
}

// buildC compiles a C program.
func buildC(t testing.TB, source string, flags ...string) string {
	t.Helper()
	return build(t, "source.c", source, append([]string{"-O2"}, flags...)...)
}

func build(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	input := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(input, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}

	runTool(t, "gcc", append([]string{"-o", input + ".out", input}, flags...)...)
	return input + ".out"
}

func runTool(t testing.TB, tool string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command(tool, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", tool, strings.Join(arguments, " "), err, out)
	}

	return string(out)
}

// A fakeMemory is memory from an address on.
type fakeMemory struct {
	start uint64
	bytes []byte
}

func (m fakeMemory) ReadMemory(address uint64, buffer []byte) error {
	if address < m.start || address-m.start > uint64(len(m.bytes)) ||
		copy(buffer, m.bytes[address-m.start:]) < len(buffer) {
		return fmt.Errorf("no memory at %#x", address)
	}
	return nil
}

func (m fakeMemory) put(address, value uint64) {
	binary.LittleEndian.PutUint64(m.bytes[address-m.start:], value)
}

// A memoryFunc is memory made of its ReadMemory.
type memoryFunc func(address uint64, buffer []byte) error

func (f memoryFunc) ReadMemory(address uint64, buffer []byte) error { return f(address, buffer) }

// mustWalk checks that the frames of a process, walked with what Find returned, are those that the
// interpreter shows.
func mustWalk(t *testing.T, memory Memory, found *Interpreter, r report) {
	t.Helper()
	if found.Version != r.Version {
		t.Errorf("version %s, want %s", found.Version, r.Version)
	}

	if len(r.Threads) != 9 || len(r.Sub) < 3 {
		t.Fatalf("the program shows %d threads, %d frames of a sub-interpreter", len(r.Threads),
			len(r.Sub))
	}

	w := walker{t, memory, found.Kernel}
	walked := w.threads()
	plain := found.CodeLayout
	plain.Qualname = 0 // frames.py shows co_name

	for _, want := range append(r.Threads, shownThread{Frames: r.Sub}) {
		if !slices.ContainsFunc(walked,
			func(got shownThread) bool { return sameThread(got, want) }) {
			t.Errorf("no thread %#x with frames %v among\n%+v", want.Key, want.Frames, walked)
		}

		for _, frame := range want.Frames {
			code, err := ReadCode(memory, frame.Code, plain)
			if err != nil || code.Function != frame.Name {
				t.Errorf("%s is named %+v, %v", frame.Name, code, err)
			}
		}
	}
}

func sameThread(got, want shownThread) bool {
	sameFrame := func(g, w shownFrame) bool {
		return g.Code == w.Code && (g.Instruction == w.Instruction || w.Instruction < 0)
	}

	return (got.Key == want.Key || want.Key == 0) &&
		slices.EqualFunc(got.Frames, want.Frames, sameFrame)
}

// A walker walks the structures of an interpreter as the BPF programs do.
type walker struct {
	t      *testing.T
	memory Memory
	kernel bpf.Python
}

// maxListLength bounds each list.
const maxListLength = 1000

func (w walker) pointer(address uint64) uint64 {
	w.t.Helper()
	value, err := readWord(w.memory, address)
	if err != nil {
		w.t.Fatal(err)
	}

	return value
}

// threads returns the frames of all threads of all interpreters.
func (w walker) threads() (threads []shownThread) {
	k := w.kernel
	for i, interpreter := 0, w.pointer(k.Interpreters); interpreter != 0; i++ {
		thread := w.pointer(interpreter + uint64(k.InterpreterThreads))
		for ; thread != 0; i++ {
			threads = append(threads,
				shownThread{w.pointer(thread + uint64(k.ThreadKey)), w.frames(thread)})
			thread = w.pointer(thread + uint64(k.ThreadNext))
		}

		if i > maxListLength {
			w.t.Fatal("no end of threads")
		}

		interpreter = w.pointer(interpreter + uint64(k.InterpreterNext))
	}

	return threads
}

// frames returns the frames of a PyThreadState, innermost first, without shims.
func (w walker) frames(thread uint64) (frames []shownFrame) {
	k := w.kernel
	frame := w.pointer(thread + uint64(k.ThreadFrame))
	if k.ThreadFrameIndirect != noIndirection && frame != 0 {
		frame = w.pointer(frame + uint64(k.ThreadFrameIndirect))
	}

	isEntry := true // the last frame begins a run of the evaluation loop
	for ; frame != 0; frame = w.pointer(frame + uint64(k.FrameBack)) {
		var entry [1]byte
		if err := w.memory.ReadMemory(frame+uint64(k.FrameEntry), entry[:]); err != nil {
			w.t.Fatal(err)
		}

		isEntry = k.Style == bpf.PythonObjects || entry[0] == 1
		if k.Style == bpf.PythonEntryFrame {
			if isEntry = entry[0] >= k.FirstEntryOwner; isEntry {
				continue
			}
		}

		const tags = 7 // of 3.14's _PyStackRef
		code := w.pointer(frame+uint64(k.FrameCode)) &^ tags
		frames = append(frames, shownFrame{Code: code, Instruction: w.instruction(frame, code)})
		if len(frames) > maxListLength {
			w.t.Fatal("no end of frames")
		}
	}

	if !isEntry {
		w.t.Error("the outermost frame does not begin a run of the evaluation loop")
	}

	return frames
}

// instruction returns the offset of a frame in the bytecode, in bytes.
func (w walker) instruction(frame, code uint64) int {
	k := w.kernel
	at := w.pointer(frame + uint64(k.FrameInstruction))
	if k.Style == bpf.PythonObjects {
		return int(int32(at)) * int(k.InstructionScale)
	}

	return int(at - code - uint64(k.CodeBytes))
}
