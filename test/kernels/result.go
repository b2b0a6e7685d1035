package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A result is the result in the log of a machine.
type result struct {
	release string // of the kernel
	mode    string // in which functions were probed
	passed  int    // tests, without subtests
	faults  []string
}

var (
	releaseLine = regexp.MustCompile(`(?m)^\w+ +kernel +(\S+)`)
	modeLine    = regexp.MustCompile(`(?m)functions are probed by (.+)$`)
	resultLine  = regexp.MustCompile(`(?m)^( *)--- (PASS|FAIL|SKIP): (\S+)`)
)

// check compares the log of a machine with its plan.
func check(log string, p plan, bootErr error) result {
	raw, err := os.ReadFile(log)
	text := strings.ReplaceAll(string(raw), "\r", "")
	r := result{release: first(releaseLine, text), mode: first(modeLine, text)}
	if err := errors.Join(bootErr, err); err != nil {
		r.fault("%v", err)
	}

	outputs, complete := outputsOf(text)
	if !complete || len(outputs) != len(p.Jobs) {
		r.fault("the machine ended before all jobs had run")
		return r
	}

	if p.refusal != "" {
		r.checkRefusal(outputs, p.refusal)
	} else {
		r.checkTests(outputs, p)
	}
	return r
}

func (r *result) fault(format string, arguments ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, arguments...))
}

func first(pattern *regexp.Regexp, text string) string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return "?"
}

// An output is the output of one job. failure is empty if it exited with 0.
type output struct{ text, failure string }

// outputsOf splits the output of runJobs. complete: all jobs have run.
func outputsOf(text string) (outputs []output, complete bool) {
	text, complete = strings.CutSuffix(text, finishedMark)

	parts := strings.Split(text, jobMark)
	for _, part := range parts[1:] {
		_, part, _ = strings.Cut(part, "\n") // the command
		part, failure, _ := strings.Cut(part, failureMark)
		outputs = append(outputs, output{strings.TrimSpace(part), strings.TrimSpace(failure)})
	}

	return outputs, complete
}

// checkRefusal checks that every job failed, and that the last one, a trace, printed the reason in
// one line.
func (r *result) checkRefusal(outputs []output, refusal string) {
	for i, o := range outputs {
		if o.failure == "" {
			r.fault("job %d has succeeded on a kernel that must be refused", i)
		}
	}

	message := outputs[len(outputs)-1].text
	isRefusal := strings.HasPrefix(message, "error: ") && strings.Contains(message, refusal)
	if !isRefusal || strings.Contains(message, "\n") {
		r.fault("want one line of error with %q, have: %s", refusal, message)
	}
}

func (r *result) checkTests(outputs []output, p plan) {
	if p.mode != "" && r.mode != p.mode {
		r.fault("functions are probed by %s, want %s", r.mode, p.mode)
	}

	if p.demo && slices.Contains(p.Jobs[len(p.Jobs)-1], "demo") {
		said := outputs[len(outputs)-1].text
		for _, want := range demoSays {
			if !want.MatchString(said) {
				r.fault("the demo does not say %s", want)
			}
		}
	}

	hasRun := make(map[string]bool)
	for i, o := range outputs {
		if o.failure != "" {
			r.fault("%s: %s", filepath.Base(p.Jobs[i][0]), o.failure)
		}

		for _, line := range resultLine.FindAllStringSubmatch(o.text, -1) {
			hasRun[line[3]] = true
			if line[2] != "PASS" {
				r.fault("%s: %s", line[2], line[3])
			} else if line[1] == "" {
				r.passed++
			}
		}
	}

	for _, test := range p.tests {
		if !hasRun[test] {
			r.fault("did not run to its end: %s", test)
		}
	}
}

// report returns a line for a kernel, and one for each fault.
func (r result) report(p plan, elapsed, used time.Duration, log string) string {
	outcome := fmt.Sprintf("%d tests passed", r.passed)
	switch {
	case len(r.faults) > 0:
		outcome = fmt.Sprintf("FAILED (%s)", log)
	case p.refusal != "":
		outcome = "refused, as it must be"
	}

	text := fmt.Sprintf("%-20s %-24s %-15s %4.0f s, CPU %3.0f s  %s\n",
		p.name, r.release, r.mode, elapsed.Seconds(), used.Seconds(), outcome)
	for _, fault := range r.faults {
		text += "        " + strings.ReplaceAll(fault, "\n", "\n        ") + "\n"
	}
	return text
}
