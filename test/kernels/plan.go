package main

import (
	"cmp"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// An expectation is the result that a kernel must have.
type expectation struct {
	name string
	// image is the name that the script `fetch` gives the kernel; empty: the same as name.
	image string
	// architecture is Go's name of it; empty: amd64.
	architecture string
	// parameters are added to the kernel's command line.
	parameters string
	// mode is the probe mode that `allocscope doctor` must report; empty for any.
	mode string
	// noTracefs: the system has mounted none, so that allocscope opens its own (fsopen(2)).
	noTracefs bool
	// refusal is in the message with which allocscope must refuse to run; empty: it must run.
	refusal string
	// demo: `allocscope demo` runs, too, and must name its leak.
	demo bool
	// hasFUSE: FUSE is a part of the kernel, not a module. False for arm64, too: emulated, any read may
	// take as long as one that a file system holds up.
	hasFUSE bool
}

// thisMachine names the kernel that runs already, on which the tests run without qemu.
const thisMachine = "here"

// expectations has the kernels in the order in which they take turns. Secure Boot locks the kernels
// of most distributions in the mode integrity (kernel_lockdown(7)).
var expectations = []expectation{
	{name: "5.10", refusal: "allocscope needs Linux 5.15"},
	{name: "5.15", mode: "single uprobes", hasFUSE: true, noTracefs: true},
	{name: "6.1", mode: "single uprobes"},
	{name: "6.8", mode: "uprobe_multi", hasFUSE: true},
	{name: "6.11", mode: "uprobe_multi"},
	{name: "6.12", mode: "uprobe_multi"},
	{name: "6.18", mode: "uprobe session"},
	{name: "newest", mode: "uprobe session"},
	{
		name: "6.12-integrity", image: "6.12", parameters: "lockdown=integrity",
		mode: "uprobe_multi",
	},
	{
		name: "6.12-confidentiality", image: "6.12", parameters: "lockdown=confidentiality",
		refusal: "locked down",
	},
	{name: "arm64-4k", architecture: arm64, mode: "uprobe_multi", demo: true},
	{name: "arm64-16k", architecture: arm64, mode: "uprobe_multi", demo: true},
}

func expectationOf(name string) (expectation, error) {
	if name == thisMachine {
		return expectation{name: name}, nil
	}
	for _, e := range expectations {
		if e.name == name {
			return e, nil
		}
	}
	return expectation{}, fmt.Errorf("kernel %q: plan.go has no expectation", name)
}

// kernelTests is the pattern of the tests that always run.
const kernelTests = "^TestKernel"

// suites are the tests that run on every kernel, beside kernelTests. All must pass.
var suites = []suite{
	{"tracer.test", "tracer", nil},
	{"bpf.test", "bpf", []string{
		"TestDrawExponential",
		"TestNegativeLog",
		"TestProduct",
		"TestSizeClass",
	}},
}

// fewTests are those tests of tracer.test that run if there is time for few: exact counts, native and
// Python stacks, and the rows of RSS. Before them, `allocscope doctor` has the kernel verify every
// BPF program.
func fewTests(mode string) []string {
	heap := "TestKernelHeap/every_allocator_function_counts_as_its_manual_page_says"
	if mode != "" { // else in all modes
		heap += "/" + strings.ReplaceAll(mode, " ", "_")
	}
	return []string{
		heap,
		"TestKernelStacks/stacks_of_C_are_complete",
		"TestKernelStacks/stacks_of_Python_name_every_line",
		"TestKernelBreakdown/rows_sum_to_RSS",
	}
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
	tests []string // that must pass
}

func planFor(s settings, expected expectation) (plan, error) {
	p := plan{expectation: expected}
	p.architecture = cmp.Or(p.architecture, amd64)
	allocscope := s.program(p.architecture, "allocscope")
	p.Environment = []string{"HOME=/tmp", "NO_COLOR=1", "PATH=/usr/bin:/bin:/usr/sbin:/sbin"}
	p.Jobs = [][]string{{allocscope, "doctor"}}
	if expected.noTracefs {
		p.Unmounted = "tracefs"
	}
	if expected.refusal != "" {
		p.Jobs = append(p.Jobs, []string{
			allocscope, "trace", "--pid", "1", "--duration", "1s", "--output", "/tmp/out",
		})
		return p, nil
	}

	p.Environment = append(p.Environment, "TEST_TARGETS="+s.targets,
		"TEST_DATA="+s.testdata)
	if expected.hasFUSE {
		p.Environment = append(p.Environment, "ALLOCSCOPE_MACHINE_HAS_FUSE=1")
	}
	if err := p.addTests(s); err != nil {
		return p, err
	}
	if p.demo && !s.few {
		p.Jobs = append(p.Jobs, []string{allocscope, "demo", "--no-tui", "--verbose"})
	}
	return p, nil
}

// addTests adds the jobs that run tests.
func (p *plan) addTests(s settings) error {
	switch {
	case s.pattern != "":
		p.addJob(s, suites[0].program, s.pattern)
		return nil
	case s.few:
		p.add(s, suites[0].program, fewTests(p.mode))
		return nil
	}

	for _, suite := range suites {
		chosen, err := list(s.program(runtime.GOARCH, suite.program), kernelTests)
		if err != nil {
			return err
		}
		p.add(s, suite.program, append(chosen, suite.tests...))
	}
	return nil
}

// demoSays is what `allocscope demo` must print: that memory grows, and which line allocates it. How
// surely it leaks depends on the pace of the trainer, which an emulated processor does not keep.
var demoSays = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^(LEAK|GROWING|LEVELLING OFF)`),
	regexp.MustCompile(`(?m)^WHERE +trainer\.py:31  keep_learned\(\)`),
}

// add adds a job that runs tests, or subtests, of a program.
func (p *plan) add(s settings, program string, tests []string) {
	p.tests = append(p.tests, tests...)
	p.addJob(s, program, patternOf(tests))
}

// addJob adds a job that runs the tests of a program that match a pattern.
func (p *plan) addJob(s settings, program, pattern string) {
	p.Jobs = append(p.Jobs, []string{
		s.program(p.architecture, program), "-test.v", "-test.short", "-test.run", pattern,
	})
}

// patternOf returns the pattern of some tests, or subtests, for -test.run. It has an element for each
// level of subtests.
func patternOf(tests []string) string {
	var levels [][]string
	for _, test := range tests {
		for level, name := range strings.Split(test, "/") {
			if level == len(levels) {
				levels = append(levels, nil)
			}
			levels[level] = append(levels[level], name)
		}
	}

	var elements []string
	for _, names := range levels {
		elements = append(elements, "^("+strings.Join(names, "|")+")$")
	}
	return strings.Join(elements, "/")
}

// list returns the tests of a program whose names match a pattern.
func list(program, pattern string) ([]string, error) {
	out, err := exec.Command(program, "-test.list", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("list tests of %s: %w", program, err)
	}
	return strings.Fields(string(out)), nil
}
