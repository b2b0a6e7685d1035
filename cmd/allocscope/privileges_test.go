package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

var capabilityNumbers = map[string]uintptr{
	"CAP_BPF": unix.CAP_BPF, "CAP_PERFMON": unix.CAP_PERFMON, "CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE,
	"CAP_CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE,
	"CAP_DAC_READ_SEARCH":    unix.CAP_DAC_READ_SEARCH,
}

// documentedCapabilities are those that docs/guides/privileges.md lists.
func documentedCapabilities(t *testing.T) []string {
	t.Helper()
	page := readFile(t, "../../docs/guides/privileges.md")
	var names []string
	for _, row := range regexp.MustCompile(`(?m)^\| (CAP_[A-Z_]+) \|`).FindAllStringSubmatch(page, -1) {
		names = append(names, row[1])
		if capabilityNumbers[row[1]] == 0 {
			t.Errorf("the page lists %s, which this test does not know", row[1])
		}
	}
	if len(names) == 0 {
		t.Fatal("the page lists no privileges")
	}
	return names
}

// withCapabilities makes a command run as a user who has these capabilities alone.
func withCapabilities(cmd *exec.Cmd, names []string) *exec.Cmd {
	unprivileged(cmd)
	for _, name := range names {
		number := capabilityNumbers[name]
		cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, number)
	}
	return cmd
}

// mountTracefs mounts tracefs for the length of a test, unless it is mounted: without CAP_SYS_ADMIN
// allocscope opens none of its own.
func mountTracefs(t *testing.T) {
	t.Helper()
	const path = "/sys/kernel/tracing"
	if _, err := os.Stat(path + "/events"); err == nil {
		return
	}
	must(t, unix.Mount("tracefs", path, "tracefs", 0, ""))
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestPrivileges traces a process of another user with the capabilities that
// docs/guides/privileges.md lists, and with one fewer. doctor must report the result.
func TestPrivileges(t *testing.T) {
	all := documentedCapabilities(t)
	mountTracefs(t)
	const heap, mapping, fault, pages = "heap", "mapping", "fault", "breakdown"
	for missing, failing := range map[string][]string{
		"none":                   {},
		"CAP_BPF":                nil, // nothing can be traced
		"CAP_PERFMON":            nil,
		"CAP_SYS_PTRACE":         nil,
		"CAP_CHECKPOINT_RESTORE": {heap},
		"CAP_DAC_READ_SEARCH":    {heap, mapping, pages},
	} {
		t.Run("without "+missing, func(t *testing.T) {
			t.Parallel()
			command := exec.Command("sleep", "1000")
			command.SysProcAttr = &syscall.SysProcAttr{
				Credential: &syscall.Credential{Uid: nobody - 1, Gid: nobody - 1},
			}
			target := tracertest.StartCommand(t, command)
			eventually(t, "sleep is executed", func() bool {
				name, _ := os.ReadFile("/proc/" + itoa(target.PID()) + "/comm")
				return string(name) == "sleep\n"
			})
			granted := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == missing })

			failed, refused := 0, 0
			if failing == nil {
				failed, refused = 1, 2
			}
			d := begin(t, withCapabilities(allocscope(t, "doctor", "--pid", itoa(target.PID())), granted))
			d.mustEnd(failed)
			dir := reachableFolder(t)
			c := begin(t, withCapabilities(allocscope(t, traceArguments(target.PID(), dir,
				"--duration", "1s", "--sources", "heap,mapping,fault")...), granted))
			c.mustEnd(refused)

			said := d.stdout.String()
			if missing == "none" {
				mustSay(t, "doctor's output", said, "with "+strings.Join(all, ", ")+"\n")
				if strings.Contains(said, "grant CAP_") {
					t.Errorf("doctor asks for a capability:\n%s", said)
				}
			} else {
				mustSay(t, "doctor's output", said, "without "+missing)
				mustSay(t, "stderr of trace", c.stderr.String(), missing)
			}
			if failing == nil {
				return
			}

			sum := readSummary(t, dir)
			for _, name := range []string{heap, mapping, fault, pages} {
				if slices.Contains(failing, name) {
					mustSay(t, "reason of "+name, reasonOf(t, sum, name), missing)
					continue
				}
				if state := states(sum)[name]; state == summary.SourceFailed {
					t.Errorf("source %s failed: %s", name, reasonOf(t, sum, name))
				}
			}
		})
	}
}

// As in a container whose seccomp profile refuses bpf(2), whatever capabilities it has.
func TestPrivilegesSeccomp(t *testing.T) {
	deny := tracertest.Build(t, "deny.c", "-DDENIED=SYS_bpf")
	target := startSteps(t)
	d := begin(t, inside(allocscope(t, "doctor"), deny))
	d.mustEnd(1)
	c := begin(t, inside(allocscope(t, traceArguments(target.PID(), newFolder(t))...), deny))
	c.mustEnd(2)
	for where, said := range map[string]string{
		"doctor's output": d.stdout.String(), "stderr of trace": c.stderr.String(),
	} {
		mustSay(t, where, said, "operation not permitted", "seccomp", "bpf")
		if strings.Contains(said, "MEMLOCK") || strings.Contains(said, "grant CAP_") {
			t.Errorf("%s names another cause:\n%s", where, said)
		}
	}
}

// TestPrivilegesExamples checks the examples of docs/guides/privileges.md.
func TestPrivilegesExamples(t *testing.T) {
	t.Run("the service has the documented capabilities", func(t *testing.T) {
		unit := readFile(t, "../../examples/allocscope@.service")
		want := strings.Join(documentedCapabilities(t), " ")
		mustSay(t, "the unit", unit, "\nAmbientCapabilities="+want+"\n",
			"\nCapabilityBoundingSet="+want+"\n")
	})

	t.Run("the wrapper takes a PID of the user's own", func(t *testing.T) {
		for argument, want := range map[string]string{
			"":                 "usage",
			"--help":           "usage",
			"1 --marks=/x":     "usage",
			"0":                "usage",
			itoa(os.Getpid()):  "is no process of user",
			"99999999":         "is no process of user",
			"../../etc/passwd": "usage",
		} {
			command := exec.Command("../../examples/allocscope-own", argument)
			command.Env = append(os.Environ(), "SUDO_UID="+itoa(nobody))
			out, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%q: %v, %q, want %q", argument, err, out, want)
			}
		}
	})
}
