package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// An expectation is what must come true on a kernel.
type expectation struct {
	// mode in which functions must be probed, as allocscope names it; empty: any.
	mode string
	// refused: allocscope must decline to run.
	refused bool
}

// thisMachine is the name for running the tests without a machine around them.
const thisMachine = "here"

// expectations by the names that the script `fetch` gives to kernels.
var expectations = map[string]expectation{
	thisMachine: {},
	"5.10":      {refused: true},
	"5.15":      {mode: "single uprobes"},
	"6.1":       {mode: "single uprobes"},
	"6.8":       {mode: "uprobe_multi"},
	"6.12":      {mode: "uprobe_multi"},
	"newest":    {mode: "uprobe session"},
}

// minimum is what allocscope says where it declines.
const minimum = "allocscope needs Linux 5.15"

// suites are the programs of tests that run on every kernel. All tests must pass whose names begin with
// TestKernel, and those named here.
var suites = []struct {
	program string
	tests   []string
}{
	{"tracer.test", nil},
	{"bpf.test", []string{
		"TestDrawsAreExponential",
		"TestLogarithmAgreesWithTheMathLibrary",
		"TestProductSaturates",
		"TestSizesOfOneClassDifferByLessThanAQuarter",
	}},
}

// A plan is what a machine does and what must come of it.
type plan struct {
	expectation
	work
	tests []string // that must pass
}

func planFor(s setting, expected expectation) (plan, error) {
	allocscope := filepath.Join(s.programs, "allocscope")
	p := plan{expectation: expected}
	p.Environment = []string{"ALLOCSCOPE_TARGETS=" + s.targets, "HOME=/tmp"}
	p.Jobs = [][]string{{allocscope, "doctor"}}
	if expected.refused {
		p.Jobs = append(p.Jobs, []string{allocscope, "trace", "--pid", "1", "--duration", "1s", "--output", "/tmp/out"})
		return p, nil
	}
	for _, suite := range suites {
		program := filepath.Join(s.programs, suite.program)
		chosen, err := list(program, "^TestKernel")
		if err != nil {
			return p, err
		}
		tests := append(chosen, suite.tests...)
		p.tests = append(p.tests, tests...)
		p.Jobs = append(p.Jobs, []string{program, "-test.v", "-test.short", "-test.run", "^(" + strings.Join(tests, "|") + ")$"})
	}
	return p, nil
}

// list gives the tests whose names match a pattern.
func list(program, pattern string) ([]string, error) {
	out, err := exec.Command(program, "-test.list", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("list tests of %s: %w", program, err)
	}
	return strings.Fields(string(out)), nil
}
