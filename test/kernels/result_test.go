package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestCheck(t *testing.T) {
	const refusal = "allocscope needs Linux 5.15"
	jobs := work{Jobs: [][]string{{"allocscope", "doctor"}, {"/programs/tracer.test"}}}
	const (
		doctor = jobMark + "allocscope doctor\nOK   kernel  6.1.0-9\r\n" +
			"functions are probed by single uprobes\r\n"
		tests = jobMark + "/programs/tracer.test\n=== RUN TestA\n" +
			"    --- PASS: TestA/sub (0s)\n--- PASS: TestA (0s)\n"
		refuse = jobMark + "allocscope doctor\nFAIL" + failureMark + "exit status 1\n" +
			jobMark + "trace\nerror: " + refusal + " or newer" + failureMark + "exit status 2\n"
	)

	passes := doctor + tests + finishedMark
	runs, refused := expectation{}, expectation{refusal: refusal}
	for name, test := range map[string]struct {
		log      string
		expected expectation
		boot     error
		fault    string // part of the only one; empty for none
	}{
		"passed":     {passes, expectation{mode: "single uprobes"}, nil, ""},
		"died":       {doctor + tests, runs, nil, "before all jobs had run"},
		"no boot":    {passes, runs, errors.New("no qemu"), "no qemu"},
		"other mode": {passes, expectation{mode: "uprobe_multi"}, nil, "want uprobe_multi"},
		"failed job": {
			doctor + tests + failureMark + "exit status 2" + finishedMark,
			runs, nil, "tracer.test: exit status 2",
		},
		"missing": {
			strings.ReplaceAll(passes, "TestA", "TestB"),
			runs, nil, "did not run to its end: TestA",
		},
		"skipped": {
			strings.Replace(passes, "\n--- PASS", "\n--- SKIP", 1),
			runs, nil, "SKIP: TestA",
		},
		"refused": {refuse + finishedMark, refused, nil, ""},
		"other refusal": {
			strings.Replace(refuse, refusal, "x", 1) + finishedMark,
			refused, nil, "want one line",
		},
	} {
		log := filepath.Join(t.TempDir(), "log")
		tracertest.NoError(t, os.WriteFile(log, []byte(test.log), 0o644))
		p := plan{expectation: test.expected, work: jobs, tests: []string{"TestA"}}

		faults := check(log, p, test.boot).faults
		if test.fault == "" && len(faults) > 0 {
			t.Errorf("%s: faults %q, want none", name, faults)
		}
		if test.fault != "" && (len(faults) != 1 || !strings.Contains(faults[0], test.fault)) {
			t.Errorf("%s: faults %q, want %q", name, faults, test.fault)
		}
	}
}
