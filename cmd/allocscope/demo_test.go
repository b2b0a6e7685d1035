package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	t.Run("names its leak", testDemoLeak)
	t.Run("killed", testDemoKilled)
	t.Run("without python", testDemoPython)
	t.Run("without privilege", testDemoPrivilege)
}

// startDemo starts a demo as a user behind sudo, in a folder of its own.
func startDemo(t *testing.T, arguments ...string) (c *command, where string) {
	t.Helper()
	where = everybodys(t)
	cmd := allocscope(t, append([]string{"demo"}, arguments...)...)
	cmd.Dir = where
	cmd.Env = append(cmd.Environ(), "PATH=/usr/bin:/bin", fmt.Sprintf("SUDO_UID=%d", nobody),
		fmt.Sprintf("SUDO_GID=%d", nobody))
	return begin(t, cmd), where
}

var trainerLine = regexp.MustCompile(`PID ([0-9]+) runs `)

// trainerOf is the PID of a demo's trainer, once it is traced.
func trainerOf(t *testing.T, c *command) int {
	t.Helper()
	c.awaitLine("Tracing ")
	pid := tracertest.Must(strconv.Atoi(trainerLine.FindStringSubmatch(c.stderr.String())[1]))(t)
	return pid
}

// mustEndSoon waits until a process is gone, or a zombie that nobody waits for.
func mustEndSoon(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "the trainer has ended", func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(raw), ") Z ")
	})
}

// lineOf is the number of the line of a file that has a text.
func lineOf(t *testing.T, path, text string) int {
	t.Helper()
	before, _, found := strings.Cut(readFile(t, path), text)
	if !found {
		t.Fatalf("%s has no %q", path, text)
	}
	return strings.Count(before, "\n") + 1
}

// leakLine is the line of a program that leaks, as the text of a frame ends.
func leakLine(t *testing.T, program string) string {
	t.Helper()
	return fmt.Sprintf("%s:%d)", program, lineOf(t, tracertest.Source(program), "# LEAK"))
}

// demonstrate runs a demo to its end. It returns its folder, and the path of the trace in that.
func demonstrate(t *testing.T) (where, link string) {
	t.Helper()
	c, where := startDemo(t, "--duration", "25s")
	pid := trainerOf(t, c)
	if uid := strings.Fields(statusOf(t, pid, "Uid"))[0]; uid != itoa(nobody) {
		t.Errorf("the trainer runs as UID %s", uid)
	}
	c.mustEnd(0)
	mustEndSoon(t, pid)

	link, err := os.Readlink(filepath.Join(where, folder.LatestLink))
	must(t, err)
	return where, link
}

func testDemoLeak(t *testing.T) {
	t.Parallel()
	var where, link string
	var result summary.Summary
	for range 3 { // a trainer that waits for a core much of the time does not grow steadily
		where, link = demonstrate(t)
		if result = readSummary(t, filepath.Join(where, link)); result.Class != verdict.ClassTooShort {
			break
		}
	}

	script := filepath.Join(where, filepath.Dir(link), "trainer.py")
	line := lineOf(t, script, "\n    learned[step] = bytes(sample)") + 1
	grown := result.Accumulating
	if len(grown) == 0 || grown[0].Function != "keep_learned" {
		t.Errorf("what accumulates most is not keep_learned: %+v", grown)
	}

	// The line allocates; the variable keeps.
	mustSay(t, "WHERE", strings.Join(result.Text.Where, "\n"), "kept by trainer.learned (dict, ")

	for _, l := range readProfile(t, filepath.Join(where, link), folder.GrowthFile).Location {
		for _, at := range l.Line {
			if at.Function.Name == "keep_learned" && int(at.Line) != line {
				t.Errorf("keep_learned is at line %d, want %d", at.Line, line)
			}
		}
	}

	for _, path := range []string{script, filepath.Dir(script), filepath.Join(where, link)} {
		info := tracertest.Must(os.Stat(path))(t)
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != nobody || info.Mode()&0o077 != 0 {
			t.Errorf("%s belongs to UID %d, %s", path, uid, info.Mode())
		}
	}
}

// The trainer ends with allocscope, however that ends.
func testDemoKilled(t *testing.T) {
	t.Parallel()
	c, _ := startDemo(t)
	pid := trainerOf(t, c)
	c.signal(syscall.SIGKILL)
	mustEndSoon(t, pid)
}

func testDemoPython(t *testing.T) {
	t.Parallel()
	cmd := allocscope(t, "demo")
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "PATH="+cmd.Dir)
	begin(t, cmd).mustEndSaying(2, "needs python3", "apt install python3")
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("leaves %v, %v", left, err)
	}
}

func testDemoPrivilege(t *testing.T) {
	t.Parallel()
	c := begin(t, unprivileged(allocscope(t, "demo")))
	c.mustEndSaying(2, "permission denied (sudo allocscope demo)")
}
