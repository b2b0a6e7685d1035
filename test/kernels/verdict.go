package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A verdict is what the log of a machine tells.
type verdict struct {
	release string // of the kernel
	mode    string // in which functions were probed
	passed  int    // tests, subtests not counted
	faults  []string
}

var (
	releaseLine = regexp.MustCompile(`(?m)^\w+ +kernel +(\S+)$`)
	modeLine    = regexp.MustCompile(`(?m)functions are probed by (.+)$`)
	resultLine  = regexp.MustCompile(`(?m)^( *)--- (PASS|FAIL|SKIP): (\S+)`)
)

// judge compares the log of a machine with its plan.
func judge(log string, p plan, bootErr error) verdict {
	raw, err := os.ReadFile(log)
	text := strings.ReplaceAll(string(raw), "\r", "")
	v := verdict{release: first(releaseLine, text), mode: first(modeLine, text)}
	if err := errors.Join(bootErr, err); err != nil {
		v.fault("%v", err)
	}
	outputs, complete := outputsOf(text)
	if !complete || len(outputs) != len(p.Jobs) {
		v.fault("the machine ended before all jobs had run")
		return v
	}
	if p.refused {
		v.judgeRefusal(outputs)
	} else {
		v.judgeTests(outputs, p)
	}
	return v
}

func (v *verdict) fault(format string, arguments ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, arguments...))
}

func first(pattern *regexp.Regexp, text string) string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return "?"
}

// An output is what one job has printed, and how it ended if that was badly.
type output struct{ text, failure string }

// outputsOf takes apart what runJobs has written.
func outputsOf(text string) (outputs []output, complete bool) {
	text, complete = strings.CutSuffix(text, finished)
	parts := strings.Split(text, jobMark)
	for _, part := range parts[1:] {
		_, part, _ = strings.Cut(part, "\n") // the command
		part, failure, _ := strings.Cut(part, failureMark)
		outputs = append(outputs, output{strings.TrimSpace(part), strings.TrimSpace(failure)})
	}
	return outputs, complete
}

// judgeRefusal wants that every job fails, and that the last one, a trace, says why in one line.
func (v *verdict) judgeRefusal(outputs []output) {
	for i, o := range outputs {
		if o.failure == "" {
			v.fault("job %d has succeeded on a kernel that is too old", i)
		}
	}
	words := outputs[len(outputs)-1].text
	if !strings.HasPrefix(words, "error: ") || !strings.Contains(words, minimum) || strings.Contains(words, "\n") {
		v.fault("want one line of error with %q, have: %s", minimum, words)
	}
}

func (v *verdict) judgeTests(outputs []output, p plan) {
	if p.mode != "" && v.mode != p.mode {
		v.fault("functions are probed by %s, want %s", v.mode, p.mode)
	}
	has := make(map[string]bool)
	for i, o := range outputs {
		if o.failure != "" {
			v.fault("%s: %s", filepath.Base(p.Jobs[i][0]), o.failure)
		}
		for _, line := range resultLine.FindAllStringSubmatch(o.text, -1) {
			has[line[3]] = true
			if line[2] != "PASS" {
				v.fault("%s: %s", line[2], line[3])
			} else if line[1] == "" {
				v.passed++
			}
		}
	}
	for _, test := range p.tests {
		if !has[test] {
			v.fault("did not run to its end: %s", test)
		}
	}
}

// report is a line for a kernel, and one for each fault.
func (v verdict) report(name string, p plan, elapsed time.Duration, log string) string {
	result := fmt.Sprintf("%d tests passed", v.passed)
	switch {
	case len(v.faults) > 0:
		result = fmt.Sprintf("FAILED (%s)", log)
	case p.refused:
		result = "refused, as it must be"
	}
	text := fmt.Sprintf("%-7s %-24s %-15s %4.0f s  %s\n", name, v.release, v.mode, elapsed.Seconds(), result)
	for _, fault := range v.faults {
		text += "        " + strings.ReplaceAll(fault, "\n", "\n        ") + "\n"
	}
	return text
}
