package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// shimFolders returns the folders of all sessions' shims.
func shimFolders() (folders []string) {
	for _, parent := range []string{"/run", "/dev/shm", "/tmp", "/var/tmp"} {
		found, _ := filepath.Glob(parent + "/allocscope-run-*")
		folders = append(folders, found...)
	}
	return folders
}

// shimOf returns the path of the shim that a process was started with.
func shimOf(t *testing.T, pid int) string {
	t.Helper()
	environment := "\x00" + readFile(t, fmt.Sprintf("/proc/%d/environ", pid))
	_, after, _ := strings.Cut(environment, "\x00LD_PRELOAD=")
	value, _, _ := strings.Cut(after, "\x00")
	path, _, _ := strings.Cut(value, ":")
	return path
}

// processWith returns the PID of a process whose arguments have a text; 0: there is none.
func processWith(t *testing.T, text string) (pid int) {
	t.Helper()
	lines := tracertest.Must(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, path := range lines {
		line, _ := os.ReadFile(path)
		if strings.Contains(string(line), text) {
			_, _ = fmt.Sscanf(path, "/proc/%d/", &pid)
		}
	}
	return pid
}

// tracerOf returns the PID of the tracer part whose result is to be in a folder.
func tracerOf(t *testing.T, dir string) (pid int) {
	t.Helper()
	if pid = processWith(t, "\x00run-tracer\x00--output\x00"+dir+"\x00"); pid == 0 {
		t.Fatal("there is no tracer part")
	}
	return pid
}

// The command goes on, and its status is the status of run, but for --fail-on.
func testRunTracerKilled(t *testing.T) {
	t.Parallel()
	for variable, status := range map[string]int{"ANY=": 0, "ALLOCSCOPE_FAIL_ON=leak": 1} {
		dir := newFolder(t)
		cmd := runPrepared(t, dir, tracertest.Build(t, "signals.c"))
		cmd.Env = append(cmd.Env, variable)
		c := begin(t, cmd)

		pid := readyPID(c)
		must(t, unix.Kill(tracerOf(t, dir), unix.SIGKILL))

		c.awaitLine("the trace was killed: there is no result")
		_ = unix.Kill(pid, unix.SIGUSR2)
		c.mustEnd(status)
	}
}

// removerOf returns the PID of the process that removes a folder.
func removerOf(t *testing.T, folder string) (pid int) {
	t.Helper()
	pid = processWith(t, "allocscope-remover\x00"+folder+"\x00")
	if pid == 0 {
		t.Fatal("there is no remover")
	}
	return pid
}

// The next session removes the files of a session of which all processes are killed.
func testRunRemoverKilled(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		c, dir, pid := running(t)
		folder := filepath.Dir(shimOf(t, pid))
		must(t, unix.Kill(removerOf(t, folder), unix.SIGKILL))
		if !all {
			_ = unix.Kill(pid, unix.SIGUSR2)
			c.mustEnd(0)
			eventually(t, "the shim is removed", func() bool { return !exists(folder) })
			continue
		}

		for _, part := range []int{tracerOf(t, dir), c.Process.Pid, pid} {
			_ = unix.Kill(part, unix.SIGKILL)
		}
		<-c.ended
		eventually(t, "the next session removes the shim", func() bool {
			call(t, "run", "--quiet", "--output", newFolder(t), "--", "true").mustEnd(0)
			return !exists(folder)
		})
	}
}

func testRunAllButRemoverKilled(t *testing.T) {
	t.Parallel()
	c, dir, pid := running(t)
	folder := filepath.Dir(shimOf(t, pid))

	removerOf(t, folder)
	for _, part := range []int{c.Process.Pid, pid, tracerOf(t, dir)} {
		_ = unix.Kill(part, unix.SIGKILL)
	}
	<-c.ended
	eventually(t, "the shim is removed", func() bool { return !exists(folder) })
}

// reach tries calls that would put another file in the place of the shim, or write it. It prints
// the calls that succeed.
const reach = `import os, sys
shim = os.environ["LD_PRELOAD"].split(":")[0]
folder = os.path.dirname(shim)
for name, attempt in {
    "rename": lambda: os.rename(shim, shim + ".keep"),
    "remove": lambda: os.remove(shim),
    "link": lambda: os.symlink("/bin/su", folder + "/allocscope_shim_x.so"),
    "chmod": lambda: os.chmod(shim, 0o777),
    "write": lambda: os.open(shim, os.O_WRONLY),
    "list": lambda: os.listdir(folder),
    "rename folder": lambda: os.rename(folder, folder + ".keep"),
    "chmod folder": lambda: os.chmod(folder, 0o777),
}.items():
    try:
        attempt()
        print("could", name)
    except PermissionError:
        pass
with open(shim, "rb"):
    print("read")
print("ready", os.getpid(), flush=True)
sys.stdin.read()
`

// testRunShimOutOfReach runs a hostile command of a user whose tracer part is root.
func testRunShimOutOfReach(t *testing.T) {
	t.Parallel()
	cmd := unprivileged(allocscope(t, runArguments(reachableFolder(t), "python3", "-c", reach)...))
	cmd.Env = append(cmd.Env, "PATH="+sudoFolder(t)+":/usr/bin:/bin")
	input := tracertest.Must(cmd.StdinPipe())(t)
	c := begin(t, cmd)

	pid := 0
	c.await("the command is ready", func() bool {
		_, err := fmt.Sscanf(c.stdout.String(), "read\nready %d\n", &pid)
		return err == nil || strings.Contains(c.stdout.String(), "could")
	})

	shim := shimOf(t, pid)
	mustBeOf(t, shim, 0)
	mustBeOf(t, filepath.Dir(shim), 0)

	stranger := exec.Command("cat", shim)
	stranger.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody - 1, Gid: nobody - 1},
	}
	if out, err := stranger.Output(); err == nil {
		t.Errorf("a stranger has read %d bytes of the shim", len(out))
	}
	if pid := processWith(t, filepath.Base(shim)); pid != 0 {
		t.Errorf("process %d has the shim's path in its arguments", pid)
	}

	_ = input.Close()
	c.mustEnd(0)
	if out := c.stdout.String(); strings.Contains(out, "could") {
		t.Errorf("the command\n%s", out)
	}
	eventually(t, "the shim is removed", func() bool { return !exists(filepath.Dir(shim)) })
}

// sudoFolder has a program sudo that is root's, with the setuid bit.
func sudoFolder(t *testing.T, flags ...string) string {
	t.Helper()
	dir := tracertest.Must(os.MkdirTemp("", "allocscope-sudo-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	raw, err := os.ReadFile(tracertest.Build(t, "sudo.c", flags...))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "sudo"), raw, 0o755)
	}
	if err == nil {
		err = os.Chmod(filepath.Join(dir, "sudo"), 0o755|os.ModeSetuid)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	must(t, err)
	return dir
}

// reachableFolder is newFolder, for other users.
func reachableFolder(t *testing.T) string {
	t.Helper()
	dir := newFolder(t)
	must(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755))
	return dir
}

// testRunBySudo runs as a user who has no privilege but by sudo.
func testRunBySudo(t *testing.T) {
	t.Parallel()
	const system = ":/usr/bin:/bin" // which may have a sudo
	by := func(t *testing.T, dir, sudo string, command ...string) *command {
		cmd := unprivileged(allocscope(t, runArguments(dir, command...)...))
		cmd.Env = append(cmd.Env, "PATH="+sudo, "ALLOCSCOPE_DETAILS=1")
		return begin(t, cmd)
	}

	t.Run("granted", func(t *testing.T) {
		dir := reachableFolder(t)
		c := by(t, dir, sudoFolder(t)+system, "sh", "-c", "id -u; echo $PATH; exit 6")
		c.mustEnd(6)
		mustSay(t, "stdout", c.stdout.String(), "65534\n", "allocscope-sudo-")
		mustSay(t, "stderr", c.stderr.String(), "HOW SURE", "go tool pprof -top")
		mustBeOf(t, filepath.Join(dir, folder.SummaryFile), nobody)
		mustBeOf(t, dir, nobody)
	})

	t.Run("ticket", func(t *testing.T) {
		sudo := sudoFolder(t) + system
		c := by(t, reachableFolder(t), sudo, "sh", "-c", "sudo -n -- id -u; sudo -- true; sudo -n -- id -u")
		c.mustEndSaying(0, "sudo: a password is required")
		if c.stdout.String() != "0\n" { // by the ticket of the command's own call
			t.Errorf("stdout %q, want root once", c.stdout.String())
		}
		const warning = "the command can become root by it"
		if strings.Contains(c.stderr.String(), warning) {
			t.Errorf("there was no ticket:\n%s", c.stderr.String())
		}

		c = by(t, reachableFolder(t), sudo, "true")
		c.mustEndSaying(0, warning)
	})

	t.Run("not needed", func(t *testing.T) {
		dir := reachableFolder(t)
		cmd := withCapabilities(allocscope(t, runArguments(dir, "id", "-u")...),
			documentedCapabilities(t))
		cmd.Env = append(cmd.Env, "PATH=/usr/bin:/bin")
		begin(t, cmd).mustPrint("65534\n")
		mustBeOf(t, filepath.Join(dir, folder.SummaryFile), nobody)
	})

	other := sudoFolder(t)
	must(t, os.Chmod(filepath.Join(other, "sudo"), 0o755))
	for name, c := range map[string]struct{ sudo, words string }{
		"refused":      {sudoFolder(t, "-DREFUSES") + system, "trace by sudo: exit status 1"},
		"no sudo":      {"/nowhere", "there is no sudo in PATH"},
		"not a setuid": {other, "not root's with the setuid bit"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := reachableFolder(t)
			r := by(t, dir, c.sudo, "/bin/echo", "started")
			r.mustEndSaying(2, c.words)
			if r.stdout.String() != "" || exists(dir) {
				t.Errorf("the command was started, or %s is there: %s", dir, r.stdout.String())
			}
		})
	}
}
