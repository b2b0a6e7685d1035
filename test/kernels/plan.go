package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// An expectation is what must happen on a kernel.
type expectation struct {
	// mode is the probe mode that `allocscope doctor` must report; empty for any.
	mode string
	// refused: allocscope must refuse to run.
	refused bool
	// hasFUSE: FUSE is a part of the kernel, not a module.
	hasFUSE bool
}

// thisMachine names the kernel that runs already, on which the tests run without qemu.
const thisMachine = "here"

// expectations has the kernels by the names that the script `fetch` gives them.
var expectations = map[string]expectation{
	thisMachine: {},
	"5.10":      {refused: true},
	"5.15":      {mode: "single uprobes", hasFUSE: true},
	"6.1":       {mode: "single uprobes"},
	"6.8":       {mode: "uprobe_multi", hasFUSE: true},
	"6.11":      {mode: "uprobe_multi"},
	"6.12":      {mode: "uprobe_multi"},
	"newest":    {mode: "uprobe session"},
	"arm64-4k":  {mode: "uprobe_multi", hasFUSE: true},
	"arm64-16k": {mode: "uprobe_multi", hasFUSE: true},
}

// refusal is in the message with which allocscope refuses a kernel.
const refusal = "allocscope needs Linux 5.15"

// kernelTests is the pattern of the tests that always run.
const kernelTests = "^TestKernel"

// suites are the tests that run on every kernel, beside those of kernelTests. All must pass.
var suites = []suite{
	{"tracer.test", "tracer", nil},
	{"bpf.test", "bpf", []string{
		"TestDrawExponential",
		"TestNegativeLog",
		"TestProduct",
		"TestSizeClass",
	}},
}

// A suite is a test program, the folder of its package, and some of its tests.
type suite struct {
	program, folder string
	tests           []string
}

// A plan is the work of a machine and its expected result.
type plan struct {
	expectation
	work
	architecture string
	tests        []string // that must pass
}

func planFor(s settings, architecture string, expected expectation) (plan, error) {
	allocscope := s.program(architecture, "allocscope")
	p := plan{expectation: expected, architecture: architecture}
	p.Environment = []string{"ALLOCSCOPE_TARGETS=" + s.targets, "HOME=/tmp"}
	if expected.hasFUSE {
		p.Environment = append(p.Environment, "ALLOCSCOPE_MACHINE_HAS_FUSE=1")
	}
	p.Jobs = [][]string{{allocscope, "doctor"}}
	if expected.refused {
		p.Jobs = append(p.Jobs, []string{
			allocscope, "trace", "--pid", "1", "--duration", "1s", "--output", "/tmp/out",
		})
		return p, nil
	}

	if s.pattern != "" {
		p.Jobs = append(p.Jobs, testJob(s.program(architecture, "tracer.test"), s.pattern))
		return p, nil
	}

	for _, suite := range suites {
		program := s.program(architecture, suite.program)
		chosen, err := list(s.program(runtime.GOARCH, suite.program), kernelTests)
		if err != nil {
			return p, err
		}

		tests := append(chosen, suite.tests...)
		p.tests = append(p.tests, tests...)
		p.Jobs = append(p.Jobs, testJob(program, "^("+strings.Join(tests, "|")+")$"))
	}
	return p, nil
}

// testJob is the command that runs the tests of a program that match a pattern.
func testJob(program, pattern string) []string {
	return []string{program, "-test.v", "-test.short", "-test.run", pattern}
}

// list returns the tests of a program whose names match a pattern.
func list(program, pattern string) ([]string, error) {
	out, err := exec.Command(program, "-test.list", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("list tests of %s: %w", program, err)
	}
	return strings.Fields(string(out)), nil
}
