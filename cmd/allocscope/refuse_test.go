package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestRefusal(t *testing.T) {
	t.Run("flags", testFlags)
	t.Run("unknown command", testUnknownCommand)
	t.Run("process", testProcess)
	t.Run("limits of memory", testMemoryLimits)
}

// testMemoryLimits runs a command under limits with which Go's runtime does not begin.
func testMemoryLimits(t *testing.T) {
	for limit, words := range map[string][]string{
		"-v 400000": {"address space is 390 MiB", "needs 2048 MiB", "ulimit -v"},
		"-d 40000":  {"data memory is 39 MiB", "needs 256 MiB", "ulimit -d"},
	} {
		cmd := allocscope(t, "version")
		cmd.Args = []string{"sh", "-c", "ulimit " + limit + `; exec "$0" version`, cmd.Path}
		cmd.Path = "/bin/sh"
		mustRefuse(t, cmd, "", words...)
	}
}

const nobody = 65534

// mustRefuse checks for exit status 2, one line on stderr that explains why, perhaps with the hint of
// wrong usage, and nothing else: no folder, no output.
func mustRefuse(t *testing.T, cmd *exec.Cmd, dir string, words ...string) {
	t.Helper()
	c := begin(t, cmd)
	if c.wait() != 2 {
		t.Errorf("%v, want exit status 2", c.ProcessState)
	}

	line, rest, _ := strings.Cut(c.stderr.String(), "\n")
	isHint := strings.HasPrefix(rest, "try 'allocscope ") && strings.Count(rest, "\n") == 1
	if !strings.HasPrefix(line, "error: ") || rest != "" && !isHint {
		t.Errorf("stderr is not one line that begins with \"error: \":\n%s", c.stderr.String())
	}

	mustSay(t, "stderr", line, words...)
	if c.stdout.String() != "" {
		t.Errorf("stdout: %q", c.stdout.String())
	}

	if exists(dir) {
		t.Errorf("leaves %s behind", dir)
	}
}

// Packages cli and target prove how a process is chosen.
func testFlags(t *testing.T) {
	tracertest.NeedsRoot(t)
	pid, sources := itoa(startSteps(t).PID()), strings.Join(source.Names(), ", ")
	for flags, words := range map[string][]string{
		"--quiet --verbose":            {"--quiet and --details"},
		"--color sometimes":            {"--color", `"sometimes" is neither auto nor`},
		"--limit 0":                    {"--limit", `"0" is not a size`},
		"--pid 0":                      {"pid 0", "no such process"},
		"--pid 2147483647":             {"pid 2147483647", "no such process"},
		"--pid 2":                      {"pid 2", "kernel thread"},
		"--duration long":              {`"long"`, "--duration", "5m"},
		"--duration 5s --warmup 5s":    {"--warmup 5s", "end of the trace", "5s"},
		"--duration 1m --warmup 2m":    {"--warmup 2m", "end of the trace", "1m"},
		"--until-settled=5m -d 5m":     {"--until-settled 5m", "the duration of 5m"},
		"--continue /there/is/none":    {"continue /there/is/none", "no such folder"},
		"--snapshot-every 99ms":        {"--snapshot-every", "99ms", "100ms"},
		"--max-live 0":                 {"--max-live 0", "1"},
		"--native some":                {"--native", "outside", "all"},
		"--tolerable 5MB/step":         {"--tolerable", "no steps"},
		"--step-symbol libpasses":      {"--step-symbol", "LIB:SYMBOL"},
		"--components /there/is/none":  {"--components", "open /there/is/none: no such file"},
		"--components /dev/zero":       {"--components", "/dev/zero: longer than 1048576 bytes"},
		"--components /proc/self/stat": {"--components", "/proc/self/stat:1: "},
		"--sources heap,network":       {"--sources", `no source "network"`, sources},
		"--sources=":                   {"--sources names none", sources},
		"--sources step": {
			"no source could be attached", "heap: ", "mapping: ",
			"fault: ",
		},
	} {
		t.Run(flags, func(t *testing.T) {
			dir := newFolder(t)
			arguments := append([]string{"trace", "--output", dir}, strings.Fields(flags)...)
			if !strings.Contains(flags, "--pid") {
				arguments = append(arguments, "--pid", pid)
			}

			_, err := callHere(t, "", arguments...)
			if err == nil || exists(dir) {
				t.Fatalf("%v; leaves a folder: %t", err, exists(dir))
			}

			mustSay(t, "the error", err.Error(), words...)
		})
	}
}

// testProcess has processes that the kernel or the user keeps from being traced.
func testProcess(t *testing.T) {
	zombie := exec.Command("true")
	must(t, zombie.Start())

	t.Cleanup(func() { _ = zombie.Wait() })
	awaitState(t, zombie.Process.Pid, "Z")
	dir := newFolder(t)
	mustRefuse(t, allocscope(t, traceArguments(zombie.Process.Pid, dir)...), dir,
		"pid "+itoa(zombie.Process.Pid), "zombie")

	target := startSteps(t)
	mustRefuse(t, unprivileged(allocscope(t, traceArguments(target.PID(), dir)...)), dir,
		"pid "+itoa(target.PID()), "permission denied", "use sudo")

	// As root in a container. The process has more capabilities than allocscope.
	mustRefuse(t, inside(allocscope(t, traceArguments(target.PID(), dir)...), "setpriv",
		"--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"), dir,
		"pid "+itoa(target.PID()), "permission denied", "root lacks a capability", "CAP_SYS_PTRACE")
}

func testUnknownCommand(t *testing.T) {
	call(t, "tracee").mustEndSaying(2, `error: unknown command "tracee"`, "trace\n")
}

// unprivileged makes a command run as a user who may do nothing special.
func unprivileged(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: nobody,
		Gid: nobody,
	}}
	return cmd
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}

// mountTmpfs mounts a file system of 2 MiB for the test.
func mountTmpfs(t *testing.T) string {
	t.Helper()
	tracertest.NeedsRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("allocscope-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV,
		"size=2m,mode=755"); err != nil {
		t.Fatalf("mount tmpfs on %s: %v", dir, err)
	}

	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
