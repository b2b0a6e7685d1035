package python

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// interpreterCommands gives the command that runs each Python of this machine, by name. One that cannot be had is absent.
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

// A report is what frames.py says.
type report struct {
	Threads []shownThread
	Sub     []shownFrame // of the sub-interpreter
	Version string
}

// frames is the program frames.py.
func frames(t testing.TB) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "frames.py"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// startFrames runs a command that runs frames.py, up to when all its threads wait, and gives the report.
func startFrames(t testing.TB, command *exec.Cmd) (*process.Process, report) {
	t.Helper()
	target := tracertest.StartCommand(t, command)
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

// startReady runs a program that says when it is ready.
func startReady(t testing.TB, command *exec.Cmd) *process.Process {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return openProcess(t, target.PID())
}

// awaitReads waits until that many threads of a process are inside read(2).
func awaitReads(pid, threads int) {
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

// readCall is the number of read(2) on x86-64.
const readCall = "0"

func openProcess(t testing.TB, pid int) *process.Process {
	t.Helper()
	p, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// find is Find on the process's memory map.
func find(t testing.TB, p *process.Process) (*Interpreter, error) {
	t.Helper()
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	return Find(p, maps)
}

// buildC compiles a C program.
func buildC(t testing.TB, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	input, output := filepath.Join(dir, "source.c"), filepath.Join(dir, "program")
	if err := os.WriteFile(input, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	runTool(t, "gcc", append([]string{"-O2", "-o", output, input}, flags...)...)
	return output
}

func runTool(t testing.TB, tool string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command(tool, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", tool, strings.Join(arguments, " "), err, out)
	}
	return string(out)
}
