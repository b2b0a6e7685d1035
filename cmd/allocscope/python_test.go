package main

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// leaking keeps byte arrays of 100 kB in line 5.
const leaking = `import sys
kept = []
def leak(n):
    for _ in range(n):
        kept.append(bytearray(100_000))
print("ready", flush=True)
for line in sys.stdin:
    leak(int(line))
    print("done", flush=True)
`

const leakedArrays = 20

func traceLeakingPython(t *testing.T, flags ...string) (*command, string) {
	t.Helper()
	target := ready(tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", leaking)))
	c, folder := tracing(t, target, flags...)
	do(target, "%d", leakedArrays)
	c.interrupt()
	return c, folder
}

// throughLeak gives the names of the functions of the largest sample, and the line of leak().
func throughLeak(t *testing.T, p *pprof.Profile) (names []string, leak pprof.Line) {
	t.Helper()
	if len(p.Sample) == 0 {
		t.Fatal("the profile is empty")
	}
	for _, l := range p.Sample[0].Location {
		names = append(names, l.Line[0].Function.Name)
		if l.Line[0].Function.Name == "leak" {
			leak = l.Line[0]
			if l.Mapping != nil || l.Address != 0 {
				t.Errorf("a Python function is at %#x in %v", l.Address, l.Mapping)
			}
		}
	}
	return names, leak
}

func TestAPythonFrameCarriesFunctionFileLineAndFirstLine(t *testing.T) {
	c, dir := traceLeakingPython(t)
	names, leak := throughLeak(t, readProfile(t, dir, folder.GrowthFile))
	if leak.Function == nil || leak.Line != 5 || leak.Function.StartLine != 3 || leak.Function.Filename != "<string>" {
		t.Fatalf("leak() is %+v in %q, want line 5 of the function that begins in line 3 of <string>", leak, names)
	}
	if at := slices.Index(names, "leak"); at+1 == len(names) || names[at+1] != "<module>" {
		t.Errorf("leak() is not called by <module>: %q", names)
	}
	if slices.Contains(names, "_PyEval_EvalFrameDefault") {
		t.Errorf("frames of the interpreter were not dropped: %q", names)
	}
	mustSay(t, "stdout", c.stdout.String(), "leak (<string>:5) < <module> (<string>:8)", fmt.Sprint(leakedArrays))
}

func TestTheInterpretersFramesAreKeptWhereTheyAreAskedFor(t *testing.T) {
	_, dir := traceLeakingPython(t, "--native", "all")
	names, leak := throughLeak(t, readProfile(t, dir, folder.GrowthFile))
	if leak.Line != 5 {
		t.Errorf("leak() in line %d, want 5", leak.Line)
	}
	if !slices.Contains(names, "_PyEval_EvalFrameDefault") || names[len(names)-1] != "_start" {
		t.Errorf("the stack is not whole: %q", names)
	}
}

func TestDoctorNamesTheInterpreter(t *testing.T) {
	target := ready(tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", leaking)))
	c := begin(t, allocscope(t, "doctor", "--pid", fmt.Sprint(target.PID())))
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "CPython 3.11 in /usr/bin/python3.11")
}

func TestAnUnknownInterpreterIsTracedWithoutPythonFramesAndNamed(t *testing.T) {
	interpreters, _ := exec.Command("sh", "-c", "ls -d ${PYENV_ROOT:-$HOME/.pyenv}/versions/3.7.*/bin/python3 2>/dev/null").Output()
	if len(interpreters) == 0 {
		t.Skip("no Python 3.7 here")
	}
	target := ready(tracertest.StartCommand(t, exec.Command("sh", "-c", "exec $0 -c \"$1\"", string(interpreters[:len(interpreters)-1]), leaking)))
	c, dir := tracing(t, target)
	do(target, "%d", leakedArrays)
	c.interrupt()
	mustSay(t, "stderr", c.stderr.String(), "source python of PID "+itoa(target.PID())+" is not attached", "CPython 3.7", "3.8 to 3.14")
	if names, _ := throughLeak(t, readProfile(t, dir, folder.GrowthFile)); !slices.Contains(names, "_PyEval_EvalFrameDefault") {
		t.Errorf("the native stack is not there: %q", names)
	}
}
