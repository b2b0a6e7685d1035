package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

const nobody = 65534

// mustRefuse wants an exit status other than 0, one line on stderr that says why, and nothing else: no folder, no output.
func mustRefuse(t *testing.T, cmd *exec.Cmd, folder string, words ...string) {
	t.Helper()
	c := begin(t, cmd)
	if c.wait() <= 0 {
		t.Errorf("%v, want an exit status", c.ProcessState)
	}
	line, rest, _ := strings.Cut(c.stderr.String(), "\n")
	if !strings.HasPrefix(line, "error: ") || rest != "" {
		t.Errorf("stderr is not one line that begins with \"error: \":\n%s", c.stderr.String())
	}
	mustSay(t, "stderr", line, words...)
	if c.stdout.String() != "" {
		t.Errorf("stdout: %q", c.stdout.String())
	}
	if exists(folder) {
		t.Errorf("leaves %s behind", folder)
	}
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	pid := itoa(startSteps(t).PID())
	for _, refusal := range []struct {
		flags string
		words []string
	}{
		{"", []string{"pid"}},
		{"--pid many", []string{`"many"`, "--pid"}},
		{"--pid 0", []string{"pid 0", "no such process"}},
		{"--pid -1", []string{"pid -1", "no such process"}},
		{"--pid 2147483647", []string{"pid 2147483647", "no such process"}},
		{"--pid " + pid + " --interval 0", []string{`"0"`, "--interval", "between 1 byte and 1 GiB"}},
		{"--pid " + pid + " --interval 5GiB", []string{`"5GiB"`, "--interval", "between 1 byte and 1 GiB"}},
		{"--pid " + pid + " --interval often", []string{`"often"`, "--interval", "64KiB"}},
		{"--pid " + pid + " --overhead 0", []string{`"0"`, "--overhead", "above 0 %", "write 3%, 0.5%, off"}},
		{"--pid " + pid + " --overhead 101%", []string{`"101%"`, "--overhead", "at most 100 %"}},
		{"--pid " + pid + " --overhead little", []string{`"little"`, "--overhead", "3%"}},
		{"--pid " + pid + " --duration 0", []string{`"0"`, "--duration", "5m"}},
		{"--pid " + pid + " --duration -5s", []string{`"-5s"`, "--duration", "5m"}},
		{"--pid " + pid + " --duration long", []string{`"long"`, "--duration", "5m"}},
		{"--pid " + pid + " --duration 5s --warmup 5s", []string{"--warmup 5s", "end of the trace", "5s"}},
		{"--pid " + pid + " --duration 1m --warmup 2m", []string{"--warmup 2m", "end of the trace", "1m"}},
		{"--pid " + pid + " --warmup never", []string{`"never"`, "--warmup"}},
		{"--pid " + pid + " --snapshot-every 99ms", []string{"--snapshot-every", "99ms", "100ms"}},
		{"--pid " + pid + " --max-live 0", []string{"--max-live 0", "1"}},
		{"--pid " + pid + " --max-live -7", []string{"--max-live -7", "1"}},
		{"--pid " + pid + " --max-live 2000000000", []string{"--max-live", "1073741824"}},
		{"--pid " + pid + " --owners /proc/self/status", []string{"--owners", "/proc/self/status:1: 2 words"}},
		{"--pid " + pid + " --owners /there/is/none", []string{"--owners", "open /there/is/none: no such file"}},
		{"--pid " + pid + " --owners /dev/zero", []string{"--owners", "/dev/zero: longer than 1048576 bytes"}},
		{"--pid " + pid + " --sources heap,network", []string{"--sources", `no source "network"`, "heap, tensor, cuda, mapping, fault, step"}},
		{"--pid " + pid + " --sources heap,", []string{"--sources", `no source ""`, "heap, tensor, cuda, mapping, fault, step"}},
		{"--pid " + pid + " --sources=", []string{"--sources names none", "heap, tensor, cuda, mapping, fault, step"}},
		{"--pid " + pid + " --sources step", []string{"no source could be attached", "heap: not asked for", "mapping: not asked for", "fault: not asked for"}},
		{"--pid " + pid + " --sampling 5", []string{"--sampling"}},
		{pid, []string{pid}},
	} {
		t.Run(refusal.flags, func(t *testing.T) {
			folder := newFolder(t)
			arguments := append([]string{"trace", "--output", folder}, strings.Fields(refusal.flags)...)
			mustRefuse(t, allocscope(t, arguments...), folder, refusal.words...)
		})
	}
}

func TestAnUnknownCommandIsRefused(t *testing.T) {
	c := call(t, "tracee")
	c.mustEnd(1)
	mustSay(t, "stderr", c.stderr.String(), `error: unknown command "tracee"`, "trace\n")
}

func TestAThreadIsRefusedAndItsProcessNamed(t *testing.T) {
	tids, err := os.ReadDir("/proc/self/task")
	if err != nil || len(tids) < 2 {
		t.Fatalf("%d threads, %v", len(tids), err)
	}
	tid, folder := tids[len(tids)-1].Name(), newFolder(t)
	mustRefuse(t, allocscope(t, "trace", "--pid", tid, "-o", folder), folder, "pid "+tid, "thread", "--pid "+itoa(os.Getpid()))
}

func TestAKernelThreadIsRefused(t *testing.T) {
	const kthreadd = "2"
	folder := newFolder(t)
	mustRefuse(t, allocscope(t, "trace", "--pid", kthreadd, "-o", folder), folder, "pid 2", "kernel thread")
}

func TestAZombieIsRefused(t *testing.T) {
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = zombie.Wait() })
	awaitState(t, zombie.Process.Pid, "Z")
	folder := newFolder(t)
	mustRefuse(t, allocscope(t, traceArguments(zombie.Process.Pid, folder)...), folder, "pid "+itoa(zombie.Process.Pid), "zombie")
}

// unprivileged makes a command that of a user who may do nothing special.
func unprivileged(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

func TestAnotherUsersProcessIsRefusedWithoutPrivilege(t *testing.T) {
	target, folder := startSteps(t), newFolder(t)
	mustRefuse(t, unprivileged(allocscope(t, traceArguments(target.PID(), folder)...)), folder,
		"pid "+itoa(target.PID()), "permission denied", "another user", "run as root")
}

func TestOnesOwnProcessIsRefusedWithoutPrivilege(t *testing.T) {
	target := tracertest.StartCommand(t, unprivileged(exec.Command("sleep", "1000")))
	folder := newFolder(t)
	mustRefuse(t, unprivileged(allocscope(t, traceArguments(target.PID(), folder)...)), folder,
		"load BPF programs: operation not permitted (run as root", "CAP_BPF")
}

func TestDoctorSaysWhatIsMissingWithoutPrivilege(t *testing.T) {
	c := begin(t, unprivileged(allocscope(t, "doctor")))
	c.mustEnd(1)
	mustSay(t, "stdout", c.stdout.String(), "FAIL  privilege", "uid 65534 without CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE", "-> run with sudo", "FAIL  BPF programs")
	mustSay(t, "stderr", c.stderr.String(), "error: ", "cannot trace here")
}

func TestAFolderThatCannotBeMadeIsRefusedAndNothingIsLeft(t *testing.T) {
	target := startSteps(t)
	for name, refusal := range map[string]struct {
		prepare func(t *testing.T, folder string) string // gives the folder to name
		words   []string
	}{
		"exists":                     {makeDir, []string{"exists", "--output", "--force"}},
		"is a file":                  {makeFile, []string{"exists", "not a directory", "--output"}},
		"is a link":                  {makeLink("/"), []string{"symbolic link", "not followed", "--output"}},
		"is a dangling link":         {makeLink("/nowhere/at/all"), []string{"symbolic link", "not followed", "--output"}},
		"has no parent":              {func(_ *testing.T, folder string) string { return folder + "/missing/out" }, []string{"no directory", "make it first"}},
		"on a read-only file system": {func(t *testing.T, folder string) string { return mountTmpfs(t, unix.MS_RDONLY) + "/out" }, []string{"read-only file system"}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := refusal.prepare(t, newFolder(t))
			before := describe(t, folder)
			c := call(t, traceArguments(target.PID(), folder)...)
			if c.wait() <= 0 || strings.Contains(c.stdout.String(), "Files are in") {
				t.Errorf("%v; stdout: %q", c.ProcessState, c.stdout.String())
			}
			mustSay(t, "stderr", lastLine(c.stderr.String()), append(refusal.words, "error: create "+folder)...)
			if after := describe(t, folder); after != before {
				t.Errorf("%s was %q and is %q", folder, before, after)
			}
		})
	}
}

func makeDir(t *testing.T, folder string) string {
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

func makeFile(t *testing.T, folder string) string {
	if err := os.WriteFile(folder, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

func makeLink(to string) func(t *testing.T, folder string) string {
	return func(t *testing.T, folder string) string {
		if err := os.Symlink(to, folder); err != nil {
			t.Fatal(err)
		}
		return folder
	}
}

// describe is what the kernel says about a path, and what lies in it.
func describe(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		return "missing"
	}
	text := info.Mode().String() + " " + info.ModTime().String()
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text += " " + e.Name()
		}
	}
	return text
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}

// mountTmpfs mounts a file system of 64 KiB for the test.
func mountTmpfs(t *testing.T, flags uintptr) string {
	t.Helper()
	tracertest.NeedsRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("allocscope-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, "size=2m,mode=755"); err != nil {
		t.Fatalf("mount tmpfs on %s: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
