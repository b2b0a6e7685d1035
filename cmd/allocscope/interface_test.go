package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/test/docs/snippet"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestInterface(t *testing.T) {
	t.Parallel()
	t.Run("exit status", testExitStatus)
	t.Run("usage hint", testUsageHint)
	t.Run("candidates", testCandidates)
	t.Run("name", testName)
	t.Run("ps", testPS)
	t.Run("environment", testEnvironment)
	t.Run("color", testColor)
	t.Run("latest", testLatest)
	t.Run("examples", testExamples)
}

// recordedFile is a file of a recorded series.
func recordedFile(t *testing.T, mb func(seconds float64) float64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "series.csv")
	writeFile(t, path, recorded(mb), 0o600)
	return path
}

// Every status of the table is reached by a call.
func testExitStatus(t *testing.T) {
	t.Parallel()
	leak, flat := recordedFile(t, growingSteadily), recordedFile(t, standingStill)
	short := filepath.Join(t.TempDir(), "short.csv")
	writeFile(t, short, "time_s,rss_mb\n0,100\n1,101\n2,102\n", 0o600)

	seen := make(map[int]bool)
	for _, c := range []struct {
		arguments string
		want      exit.Status
	}{
		{"version", exit.Done},
		{"trace --help", exit.Done},
		{"verdict --fail-on leak " + flat, exit.Done},
		{"verdict " + short, exit.Done},
		{"verdict /proc/self/cmdline", exit.Failed},
		{"trace --no-such-flag 1", exit.Refused},
		{"mark 2147483647", exit.Refused},
		{"mark", exit.Refused},
		{"report /nowhere", exit.Refused},
		{"diff /nowhere", exit.Refused},
		{"verdict", exit.Refused},
		{"ps 1", exit.Refused},
		{"demo --duration 1h", exit.Refused},
		{"doctor x", exit.Refused},
		{"version --quiet --debug", exit.Refused},
		{"verdict --fail-on leak " + leak, exit.Found},
		{"verdict --fail-on leak " + short, exit.Inconclusive},
	} {
		got := call(t, strings.Fields(c.arguments)...)
		if got.wait() != int(c.want) {
			t.Errorf("%s: %v, want exit status %d; stderr:\n%s", c.arguments, got.ProcessState,
				c.want,
				got.stderr.String())
		}
		seen[got.wait()] = true
	}

	for status := range exit.Meanings {
		if !seen[status] {
			t.Errorf("no call ended with status %d", status)
		}
	}
}

// Packages cli, flagvalue and target prove which values are wrong.
func testUsageHint(t *testing.T) {
	c := call(t, "trace", "--max-live", "0", "-p", "1")
	c.mustEndSaying(2, "error: --max-live 0 is not between 1 and", "\ntry 'allocscope trace --help'\n")

	byVariable := allocscope(t, "trace")
	byVariable.Env = append(byVariable.Environ(), "ALLOCSCOPE_OVERHEAD=many")
	begin(t, byVariable).mustEndSaying(2, `ALLOCSCOPE_OVERHEAD: "many" is not a share`,
		"try 'allocscope trace --help'")

	c = call(t, "trace", "2147483647") // right usage, but no process
	c.mustEnd(2)
	if strings.Contains(c.stderr.String(), "--help") {
		t.Errorf("has a hint:\n%s", c.stderr.String())
	}
}

// python starts a Python program with arguments of its own, which say what it is in command lines.
func python(t *testing.T, launcher []string, arguments ...string) *tracertest.Target {
	t.Helper()
	const code = "import sys; print('ready', flush=True); sys.stdin.read()"
	program := append(slices.Clone(launcher), "/usr/bin/python3", "-c", code)
	program = append(program, arguments...)
	return ready(tracertest.StartCommand(t, exec.Command(program[0], program[1:]...)))
}

func testCandidates(t *testing.T) {
	target := python(t, nil, "candidate")
	call(t, "trace").mustEndSaying(2, "name the process: allocscope trace PID",
		"RSS", "AGE", "COMMAND")

	call(t, "ps").mustPrint(itoa(target.PID()))
}

func testName(t *testing.T) {
	t.Parallel()
	// Other runs of this test have other texts. Package tree proves which process is meant.
	once, twice := fmt.Sprintf("once-%d", os.Getpid()), fmt.Sprintf("twice-%d", os.Getpid())
	launched := python(t, []string{"/bin/sh", "-c", `"$@"; :`, "sh"}, once)
	first, second := python(t, nil, twice, "--a"), python(t, nil, twice, "--b")
	c := call(t, "trace", "--name", once, "--output", newFolder(t), "--duration", "1s")
	c.mustEndSaying(0, fmt.Sprintf("--name %q is PID %d: ", once, launched.PID()))

	dir := newFolder(t)
	c = call(t, "trace", "--name", twice, "--output", dir)
	c.mustEndSaying(2, "is in the command lines of 2 jobs",
		itoa(first.PID()), itoa(second.PID()), twice+" --a", twice+" --b", "RSS", "AGE")
	if exists(dir) {
		t.Error("it makes a folder")
	}
}

// A listed process of `allocscope ps --json`.
type listed struct {
	PID       int
	RSS       int64    `json:"rss_bytes"`
	PerMin    *float64 `json:"rate_bytes_per_min"`
	Role      growth.Role
	Allocator string
	Arguments []string
	Readable  bool
}

// listedBy calls `allocscope ps --json`, and returns its entry of a process.
func listedBy(t *testing.T, ps *exec.Cmd, pid int) listed {
	t.Helper()
	c := begin(t, ps)
	c.mustEnd(0)
	var list struct {
		Schema    string
		SpanS     float64 `json:"span_s"`
		Processes []listed
	}
	if err := json.Unmarshal([]byte(c.stdout.String()), &list); err != nil {
		t.Fatalf("%v in %s", err, c.stdout.String())
	}
	if list.Schema != "allocscope-ps/1" || list.SpanS < 1 {
		t.Errorf("schema %q, span %v s", list.Schema, list.SpanS)
	}

	i := slices.IndexFunc(list.Processes, func(p listed) bool { return p.PID == pid })
	if i < 0 {
		t.Fatalf("PID %d is not in\n%s", pid, c.stdout.String())
	}
	return list.Processes[i]
}

func testPS(t *testing.T) {
	target := python(t, nil, "listed\x1b[31m")
	p := listedBy(t, allocscope(t, "ps", "--json"), target.PID())
	if p.RSS <= 0 || p.PerMin == nil || p.Role != growth.RoleTrainer || !p.Readable ||
		p.Allocator != "glibc" || p.Arguments[len(p.Arguments)-1] != "listed?[31m" {
		t.Errorf("lists %+v", p)
	}

	// Another user sees less of it.
	p = listedBy(t, unprivileged(allocscope(t, "ps", "--json")), target.PID())
	if p.RSS <= 0 || p.PerMin == nil || p.Role != growth.RoleTrainer || p.Readable ||
		p.Allocator != "" || p.Arguments[len(p.Arguments)-1] != "listed?[31m" {
		t.Errorf("another user sees %+v", p)
	}

	c := call(t, "ps", "--all")
	c.mustPrint(itoa(os.Getpid()), "listed?[31m")
	mustSay(t, "stderr", c.stderr.String(), "PACE is the growth of RSS over ")

	c = begin(t, unprivileged(allocscope(t, "ps")))
	c.mustPrint(itoa(target.PID()), "listed?[31m")
	mustSay(t, "stderr", c.stderr.String(), "of other users could not be read: sudo allocscope ps")
}

func testEnvironment(t *testing.T) {
	t.Parallel()
	target, dir := startSteps(t), newFolder(t)
	cmd := allocscope(t, "trace", "--overhead", "2%", "--limit", "64MiB", itoa(target.PID()))
	cmd.Env = append(cmd.Environ(), "ALLOCSCOPE_DURATION=1s", "ALLOCSCOPE_OUTPUT="+dir,
		"ALLOCSCOPE_OVERHEAD=off", "ALLOCSCOPE_PID=1", "ALLOCSCOPE_NO_TUI=1",
		"ALLOCSCOPE_SOURCES=heap", "ALLOCSCOPE_OVERHAED=1%", "ALLOCSCOPE_JSON=true")
	c := begin(t, cmd)
	c.mustEndSaying(0, "warn: there is no flag for the environment variable ALLOCSCOPE_OVERHAED\n")

	s := readSummary(t, dir)
	if s.Process.PID != target.PID() || s.Overhead.Limit != 0.02 || len(s.Sources) == 0 {
		t.Errorf("PID %d, limit %v, sources %+v", s.Process.PID, s.Overhead.Limit, s.Sources)
	}
	for _, source := range s.Sources {
		if (source.Name == "heap") != (source.State == summary.SourceAttached) {
			t.Errorf("source %s is %s", source.Name, source.State)
		}
	}

	const limit = 64 << 20
	if got := s.Limit; got == nil || got.Of != growth.LimitGiven || got.Bytes != limit ||
		got.HeadroomBytes <= 0 || got.HeadroomBytes >= limit {
		t.Errorf("limit %+v", got)
	}
	if !strings.HasPrefix(c.stdout.String(), "{") {
		t.Errorf("prints no JSON:\n%s", c.stdout.String())
	}
}

// Package console proves when output is coloured.
func testColor(t *testing.T) {
	byVariable := allocscope(t, "report", "/nowhere")
	byVariable.Env = append(byVariable.Environ(), "ALLOCSCOPE_COLOR=always")
	for _, cmd := range []*exec.Cmd{
		allocscope(t, "report", "/nowhere", "--color", "always"), byVariable,
	} {
		begin(t, cmd).mustEndSaying(2,
			"\x1b[38;5;160merror:\x1b[0m open /nowhere: there is no such folder")
	}
}

func testLatest(t *testing.T) {
	t.Parallel()
	target := startSteps(t)
	where := t.TempDir()
	in := func(arguments ...string) *command {
		cmd := allocscope(t, arguments...)
		cmd.Dir = where
		return begin(t, cmd)
	}

	c := in("report")
	c.mustEndSaying(2, "there is no allocscope-latest here", "allocscope report DIR")

	quiet := in("trace", "--quiet", itoa(target.PID()), "--duration", "1s")
	quiet.mustEnd(0)
	if quiet.stderr.String() != "" {
		t.Errorf("stderr:\n%s", quiet.stderr.String())
	}
	name, err := os.Readlink(filepath.Join(where, folder.LatestLink))
	if err != nil || !strings.HasPrefix(name, fmt.Sprintf("allocscope-%d-", target.PID())) {
		t.Fatalf("the link leads to %q, %v", name, err)
	}

	must(t, os.Remove(filepath.Join(where, name, folder.ReportFile)))
	in("report").mustEnd(0)
	if !exists(filepath.Join(where, name, folder.ReportFile)) {
		t.Error("there is no report")
	}

	view := in("view")
	view.await("the address is printed", func() bool {
		return strings.HasPrefix(view.stdout.String(), "http://127.0.0.1:")
	})
	view.interrupt()

	c = in("view", name, "another")
	c.mustEndSaying(2, "2 folders are named", "the newest is "+name)

	in("trace", itoa(target.PID()), "--duration", "1s", "--output", "elsewhere").mustEnd(0)
	if again, err := os.Readlink(filepath.Join(where, folder.LatestLink)); again != name {
		t.Errorf("the link leads to %q, %v", again, err)
	}
}

// The examples of the help have flags that exist, and values that they can have.
func testExamples(t *testing.T) {
	count := 0
	for _, command := range newRootCommand(console.New(io.Discard)).Commands() {
		for line := range strings.Lines(command.Example) {
			words := strings.Fields(line)
			words = slices.DeleteFunc(words, func(word string) bool {
				return word == "sudo" || strings.HasPrefix(word, "ALLOCSCOPE_")
			})
			if len(words) == 0 || words[0] != "allocscope" {
				t.Errorf("%s: an example begins with another command: %s", command.Name(), line)
				continue
			}

			if err := parse(snippet.Command{Arguments: words[1:]}); err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
			count++
		}
	}
	if count < 10 {
		t.Errorf("there are %d examples", count)
	}
}
