package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	jobs := work{Jobs: [][]string{{"allocscope", "doctor"}, {"/programs/tracer.test"}}}
	const (
		doctor = jobMark + "allocscope doctor\nOK   kernel  6.1.0-9\r\n" +
			"functions are probed by single uprobes\r\n"
		tests  = jobMark + "/programs/tracer.test\n=== RUN TestA\n    --- PASS: TestA/sub (0s)\n--- PASS: TestA (0s)\n"
		refuse = jobMark + "allocscope doctor\nFAIL" + failureMark + "exit status 1\n" +
			jobMark + "trace\nerror: " + refusal + " or newer" + failureMark + "exit status 1\n"
	)

	for name, test := range map[string]struct {
		log      string
		expected expectation
		boot     error
		fault    string // part of the only one; empty for none
	}{
		"passed":        {doctor + tests + finishedMark, expectation{mode: "single uprobes"}, nil, ""},
		"died":          {doctor + tests, expectation{}, nil, "before all jobs had run"},
		"no boot":       {doctor + tests + finishedMark, expectation{}, errors.New("no qemu"), "no qemu"},
		"other mode":    {doctor + tests + finishedMark, expectation{mode: "uprobe_multi"}, nil, "want uprobe_multi"},
		"failed job":    {doctor + tests + failureMark + "exit status 2" + finishedMark, expectation{}, nil, "tracer.test: exit status 2"},
		"missing":       {doctor + strings.ReplaceAll(tests, "TestA", "TestB") + finishedMark, expectation{}, nil, "did not run to its end: TestA"},
		"skipped":       {doctor + strings.Replace(tests, "\n--- PASS", "\n--- SKIP", 1) + finishedMark, expectation{}, nil, "SKIP: TestA"},
		"refused":       {refuse + finishedMark, expectation{refused: true}, nil, ""},
		"other refusal": {strings.Replace(refuse, refusal, "x", 1) + finishedMark, expectation{refused: true}, nil, "want one line"},
	} {
		log := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(log, []byte(test.log), 0o644); err != nil {
			t.Fatal(err)
		}
		p := plan{expectation: test.expected, work: jobs, tests: []string{"TestA"}}
		got := strings.Join(check(log, p, test.boot).faults, "; ")
		if (got == "") != (test.fault == "") || !strings.Contains(got, test.fault) || strings.Contains(got, "; ") {
			t.Errorf("%s: faults %q, want %q", name, got, test.fault)
		}
	}
}
