package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestRun checks that `allocscope run` changes nothing of a command but that it is traced.
func TestRun(t *testing.T) {
	// The commands of these tests must not ignore the signals that a background job of a script
	// ignores.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	t.Cleanup(func() { signal.Stop(signals) })
	before := shimFolders()
	t.Cleanup(func() { // when all have ended
		eventually(t, "no folder of a shim is left", func() bool {
			for _, folder := range shimFolders() {
				if !slices.Contains(before, folder) {
					return false
				}
			}
			return true
		})
	})

	t.Run("exit status", testRunStatus)
	t.Run("refused", testRunRefused)
	t.Run("surroundings", testRunSurroundings)
	t.Run("standard input", testRunInput)
	t.Run("programs of other users", testRunOtherUsers)
	t.Run("a library that is not there", testRunNoLibrary)
	t.Run("static program", testRunStatic)
	t.Run("an executable of the command's name", testRunName)
	t.Run("signals of the launcher alone", testRunSignals)
	t.Run("signals of the group", testRunGroupSignals)
	t.Run("terminal", testRunTerminal)
	t.Run("duration", testRunDuration)
	t.Run("children outlive the command", testRunOrphans)
	t.Run("launcher is killed", testRunLauncherKilled)
	t.Run("tracer part is killed", testRunTracerKilled)
	t.Run("remover is killed", testRunRemoverKilled)
	t.Run("all but the remover are killed", testRunAllButRemoverKilled)
	t.Run("the shim is out of reach", testRunShimOutOfReach)
	t.Run("output", testRunOutput)
	t.Run("user behind sudo", testRunBehindSudo)
	t.Run("by sudo", testRunBySudo)
}

// runArguments run a command below allocscope with its result in a folder. The sources of all
// processes are off: for each run the kernel would verify their programs.
func runArguments(dir string, command ...string) []string {
	return append([]string{"run", "--output", dir, "--sources", "heap", "--"}, command...)
}

// runPrepared prepares a run in a process group of its own.
func runPrepared(t *testing.T, dir string, command ...string) *exec.Cmd {
	t.Helper()
	cmd := allocscope(t, runArguments(dir, command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // some commands outlive it, and keep its output open
	return cmd
}

// running starts a run of testdata/signals.c, and returns the PID of that.
func running(t *testing.T) (c *command, dir string, pid int) {
	t.Helper()
	dir = newFolder(t)
	c = begin(t, runPrepared(t, dir, tracertest.Build(t, "signals.c")))
	return c, dir, readyPID(c)
}

// readyPID awaits the PID that testdata/signals.c prints.
func readyPID(c *command) (pid int) {
	c.t.Helper()
	c.await("the command is ready", func() bool {
		_, err := fmt.Sscanf(c.stdout.String(), "ready %d\n", &pid)
		return err == nil
	})
	c.t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	return pid
}

// awaitCount awaits so many lines of standard output.
func (c *command) awaitCount(line string, count int) {
	c.t.Helper()
	c.await(fmt.Sprintf("%d lines %s", count, line), func() bool { return c.count(line) >= count })
}

// count counts the lines of standard output that are equal to one, but for spaces at their end.
func (c *command) count(line string) (count int) {
	for l := range strings.Lines(c.stdout.String()) {
		if strings.TrimRight(l, " \r\n") == line {
			count++
		}
	}
	return count
}

func testRunStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text, mode)
		return path
	}
	script := func(line string) string { return file(line, "#!/bin/sh\n"+line+"\n", 0o755) }

	for name, c := range map[string]struct {
		command string
		status  int
		signal  syscall.Signal
	}{
		"0":                     {"true", 0, 0},
		"7":                     {script("exit 7"), 7, 0},
		"130":                   {script("exit 130"), 130, 0},
		"SIGTERM":               {script("kill -TERM $$"), 0, unix.SIGTERM},
		"SIGKILL":               {script("kill -KILL $$"), 0, unix.SIGKILL},
		"SIGSEGV":               {script("kill -SEGV $$"), 0, unix.SIGSEGV},
		"no interpreter line":   {file("plain", "exit 5\n", 0o755), 5, 0},
		"not found":             {"no-such-command", 127, 0},
		"not executable":        {file("data", "", 0o644), 126, 0},
		"interpreter not found": {file("lost", "#!/no/such/interpreter\n", 0o755), 127, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, runPrepared(t, newFolder(t), c.command))
			r.wait()
			status := r.ProcessState.Sys().(syscall.WaitStatus)
			if c.signal != 0 && status.Signal() != c.signal ||
				c.signal == 0 && status.ExitStatus() != c.status {
				t.Errorf("%v, want status %d, signal %v; stderr:\n%s", r.ProcessState, c.status,
					c.signal, r.stderr.String())
			}
			if status.CoreDump() {
				t.Error("there is a core file of allocscope")
			}
		})
	}
}

func testRunRefused(t *testing.T) {
	t.Parallel()
	for arguments, words := range map[string][]string{
		"run":                      {"name the command: allocscope run -- COMMAND"},
		"run --marks - -- true":    {"--marks -", "standard input"},
		"run --max-live 0 -- true": {"--max-live 0"},
		"run --pid 1 -- true":      {"unknown flag: --pid"},
	} {
		mustRefuse(t, allocscope(t, strings.Fields(arguments)...), "", words...)
	}

	used := t.TempDir() // it is no folder of a trace
	writeFile(t, filepath.Join(used, "file"), "", 0o644)
	started := filepath.Join(t.TempDir(), "started")
	for _, flags := range [][]string{
		{"--output", used}, {"--output", newFolder(t), "--marks", used + "/none"},
	} {
		c := call(t, slices.Concat([]string{"run"}, flags, []string{"--", "touch", started})...)
		c.mustEnd(2)
		if exists(started) {
			t.Errorf("%q: the command was started", flags)
		}
	}
}

// testRunSurroundings compares the environment of a command with its environment without run.
func testRunSurroundings(t *testing.T) {
	t.Parallel()
	program, dir := tracertest.Build(t, "surroundings.c"), newFolder(t)
	work := t.TempDir()
	setup := "umask 027; ulimit -n 123; ulimit -c 0; exec 3</etc/passwd 7>>seven; read line <&3; " +
		"cd /usr; export A='b c' LD_PRELOAD=libm.so.6; exec nice -n 3 env --ignore-signal=PIPE " +
		"--ignore-signal=QUIT --ignore-signal=HUP --block-signal=USR1 --block-signal=INT \"$@\""

	printed := func(name string, command ...string) string {
		file := tracertest.Must(os.Create(filepath.Join(work, name)))(t)
		defer file.Close()
		cmd := exec.Command("sh", append([]string{"-c", setup, "sh"}, command...)...)
		cmd.Dir, cmd.Stdout = work, file
		cmd.Env = slices.DeleteFunc(os.Environ(),
			func(entry string) bool { return strings.HasPrefix(entry, "SUDO_") })
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		text, _, _ := strings.Cut(readFile(t, file.Name()), "\n\n") // the result follows
		text = strings.ReplaceAll(text, file.Name(), "OUTPUT")
		return regexp.MustCompile(`SigQ:.*|, at \d+`).ReplaceAllString(text, "")
	}

	want := printed("without", program, "x y", "")
	got := printed("below", append([]string{binary}, runArguments(dir, program, "x y", "")...)...)

	const preload = "environment LD_PRELOAD="
	got = regexp.MustCompile(preload+`/\S*allocscope\S*\.so:`).ReplaceAllString(got, preload)
	if diff := differing(want, got); diff != "" {
		t.Error(diff)
	}
}

// differing returns the lines that differ.
func differing(want, got string) string {
	var diff strings.Builder
	gotten := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	wanted := strings.Split(strings.TrimSuffix(want, "\n"), "\n")
	for _, line := range wanted {
		if !slices.Contains(gotten, line) {
			diff.WriteString("\n- " + line)
		}
	}
	for _, line := range gotten {
		if !slices.Contains(wanted, line) {
			diff.WriteString("\n+ " + line)
		}
	}
	return diff.String()
}

func testRunInput(t *testing.T) {
	t.Parallel()
	cmd := runPrepared(t, newFolder(t), "wc", "-c")
	cmd.Stdin = strings.NewReader(strings.Repeat("x", 1<<20))
	begin(t, cmd).mustPrint("1048576\n")
}

// Programs that the command starts as another user can load the shim, too.
func testRunOtherUsers(t *testing.T) {
	t.Parallel()
	cmd := runPrepared(t, newFolder(t), "setpriv", "--reuid", itoa(nobody), "--clear-groups",
		"grep", "-c", "allocscope_shim_", "/proc/self/maps")
	private := t.TempDir()
	must(t, os.Chmod(private, 0o700))
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+private)
	c := begin(t, cmd)
	c.mustEnd(0)
	if strings.Contains(c.stderr.String(), "cannot be preloaded") {
		t.Errorf("stderr:\n%s", c.stderr.String())
	}
}

// The dynamic linker warns in the launcher and in the command, not in our other processes.
func testRunNoLibrary(t *testing.T) {
	t.Parallel()
	cmd := runPrepared(t, newFolder(t), "true")
	cmd.Env = append(cmd.Env, "LD_PRELOAD=/no/such/library.so")
	c := begin(t, cmd)
	c.mustEnd(0)
	const most = 2
	if n := strings.Count(c.stderr.String(), "/no/such/library.so"); n == 0 || n > most {
		t.Errorf("%d warnings, want 1 to %d:\n%s", n, most, c.stderr.String())
	}
}

// The note on untraced processes is short enough not to be cut.
func testRunStatic(t *testing.T) {
	t.Parallel()
	dir := newFolder(t)
	c := begin(t, allocscope(t, "run", "--output", dir, "--",
		tracertest.Build(t, "signals.c", "-static")))
	pid := readyPID(c)
	c.awaitLine(" is not attached: the shim does not see its allocations")
	time.Sleep(3 * time.Second) // a program that ends within a second has no notes
	_ = unix.Kill(pid, unix.SIGUSR2)
	c.mustEndSaying(0, "malloc was not traced (the shim does not see its "+
		"allocations, or was not loaded)")
}

func testRunName(t *testing.T) {
	t.Parallel()
	cmd := runPrepared(t, newFolder(t), "true")
	name := filepath.Join(t.TempDir(), "run")
	must(t, os.Symlink(binary, name))
	cmd.Path, cmd.Args[0] = name, "run"
	begin(t, cmd).mustEndSaying(0, "NOT ENOUGH DATA")
}

// A signal sent to the launcher only reaches the command once.
func testRunSignals(t *testing.T) {
	t.Parallel()
	c, dir, pid := running(t)
	for _, s := range []syscall.Signal{
		unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGALRM,
		unix.SIGTERM,
	} {
		before := c.count(unix.SignalName(s))
		c.signal(s)
		c.awaitCount(unix.SignalName(s), before+1)
	}

	must(t, unix.Kill(pid, unix.SIGUSR2))
	c.mustEnd(0)
	for name, want := range map[string]int{
		"SIGTERM": 2, "SIGINT": 1, "SIGHUP": 1, "SIGQUIT": 1, "SIGUSR1": 1, "SIGALRM": 1,
	} {
		if got := c.count(name); got != want {
			t.Errorf("%d times %s, want %d", got, name, want)
		}
	}
	mustHaveEnded(t, dir, summary.EndedExit)
}

// A signal sent to the group reaches the command as often.
func testRunGroupSignals(t *testing.T) {
	t.Parallel()
	c, _, pid := running(t)
	group := []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT}
	const count = 3
	for i := range count {
		for _, s := range group {
			must(t, unix.Kill(-c.Process.Pid, s))
			c.awaitCount(unix.SignalName(s), i+1)
		}
	}

	// One that follows shows that all before have been dealt with.
	c.signal(unix.SIGUSR1)
	c.awaitCount("SIGUSR1", 1)
	for _, s := range group {
		if got := c.count(unix.SignalName(s)); got != count {
			t.Errorf("%s to the group: %d sent, %d received", unix.SignalName(s), count, got)
		}
	}
	_ = unix.Kill(pid, unix.SIGUSR2)
	c.mustEnd(0)
}

// The terminal is the command's: its keys end, stop and continue it.
func testRunTerminal(t *testing.T) {
	t.Parallel()
	dir := newFolder(t)
	m := startTmux(t, 100, 40, "bash -i")
	run := strings.Join(append([]string{"env -u SUDO_UID -u SUDO_GID", binary},
		runArguments(dir, tracertest.Build(t, "signals.c"))...), " ")
	m.press(run+"; echo status $?", "Enter")
	pid, began := 0, regexp.MustCompile(`ready (\d+)`)
	m.wait("the command begins", func() bool {
		if found := began.FindStringSubmatch(m.shows(false)); found != nil {
			pid, _ = strconv.Atoi(found[1])
		}
		return pid != 0
	})

	m.press("C-z")
	awaitState(t, pid, "T")
	m.until("Stopped")
	m.press("fg", "Enter")
	awaitState(t, pid, "S")

	// The keys reach the command once: one that follows shows that all has been dealt with.
	const count = 3
	for range count {
		received := strings.Count(m.shows(true), "SIGINT")
		m.press("C-c")
		m.wait("the command is interrupted", func() bool {
			return strings.Count(m.shows(true), "SIGINT") > received
		})
	}
	launcher, err := strconv.Atoi(statusOf(t, pid, "PPid"))
	if err == nil {
		err = unix.Kill(launcher, unix.SIGUSR1)
	}
	must(t, err)
	m.until("SIGUSR1")
	if got := strings.Count(m.shows(true), "SIGINT"); got != count {
		t.Errorf("Ctrl-C was pressed %d times, and received %d times", count, got)
	}

	_ = unix.Kill(pid, unix.SIGUSR2)
	m.until("NOT ENOUGH DATA")
	mustHaveEnded(t, dir, summary.EndedExit)
	m.press("exit", "Enter")
	m.mustBeGivenBack()
}

func testRunDuration(t *testing.T) {
	t.Parallel()
	dir := newFolder(t)
	cmd := allocscope(t, "run", "--output", dir, "--duration", "1s", "--",
		tracertest.Build(t, "signals.c"))
	c := begin(t, cmd)
	pid := readyPID(c)
	c.awaitLine("(the result follows after 1s, or when it ends)")
	c.awaitFile(dir, folder.SummaryFile)
	c.await("the result", func() bool { return strings.Contains(c.stderr.String(), "HOW SURE") })
	c.signal(unix.SIGTERM)
	c.awaitCount("SIGTERM", 1)
	mustHaveEnded(t, dir, summary.EndedDuration)

	_ = unix.Kill(pid, unix.SIGUSR2)
	c.mustEnd(0)
}

// The run ends with its command. Processes that the command has left behind still have the shim.
func testRunOrphans(t *testing.T) {
	t.Parallel()
	dir := newFolder(t)
	c := begin(t, runPrepared(t, dir, "sh", "-c",
		tracertest.Build(t, "signals.c")+" & exec sleep 0.1"))
	pid := readyPID(c)
	c.mustEnd(0)
	mustHaveEnded(t, dir, summary.EndedExit)
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("the process that the command left: %v", err)
	}
	shim := shimOf(t, pid)
	if !exists(shim) {
		t.Errorf("%s is gone, and a process uses it", shim)
	}
	_ = unix.Kill(pid, unix.SIGUSR2)
	eventually(t, "the shim is removed", func() bool { return !exists(filepath.Dir(shim)) })
}

// The command goes on, and so does the trace until the command ends.
func testRunLauncherKilled(t *testing.T) {
	t.Parallel()
	c, dir, pid := running(t)
	tracer, folder := tracerOf(t, dir), filepath.Dir(shimOf(t, pid))
	if !exists(folder) {
		t.Fatalf("%s is not there: the test is wrong", folder)
	}
	c.signal(unix.SIGKILL)
	<-c.ended
	must(t, unix.Kill(pid, unix.SIGUSR2))
	eventually(t, "the trace has ended", func() bool { return !exists("/proc/" + itoa(tracer)) })
	mustHaveEnded(t, dir, summary.EndedExit)
	eventually(t, "the shim is removed", func() bool { return !exists(folder) })
}

func testRunOutput(t *testing.T) {
	t.Parallel()
	c := call(t, "run", "--quiet", "--output", newFolder(t), "--python-objects", "--", "sh", "-c",
		"echo $PYTHONMALLOC")
	c.mustEnd(0)
	if said := c.stderr.String(); c.stdout.String() != "malloc\n" ||
		!regexp.MustCompile(`^NOT ENOUGH DATA [^\n]*\n$`).MatchString(said) {
		t.Errorf("stdout %q, stderr %q", c.stdout.String(), said)
	}

	c = call(t, "run", "--json", "--quiet", "--output", newFolder(t), "--", "true")
	c.mustEnd(0)
	var s summary.Summary
	must(t, json.Unmarshal([]byte(c.stderr.String()), &s))
	if want := []string{"run", "--json"}; !slices.Equal(s.CommandLine[1:3], want) ||
		s.Process.Command != "true" {
		t.Errorf("command line %q, process %+v", s.CommandLine, s.Process)
	}

	call(t, "run", "--fail-on", "leak", "--output", newFolder(t), "--", "true").mustEnd(4)
	call(t, "run", "--fail-on", "leak", "--output", newFolder(t), "--", "false").mustEnd(1)
}

// mustBeOf checks the owner of a file.
func mustBeOf(t *testing.T, path string, uid uint32) {
	t.Helper()
	info := tracertest.Must(os.Stat(path))(t)
	if got := info.Sys().(*syscall.Stat_t).Uid; got != uid {
		t.Errorf("%s belongs to UID %d, want %d", path, got, uid)
	}
}

func testRunBehindSudo(t *testing.T) {
	t.Parallel()
	dir := reachableFolder(t)
	// The parent is a shell with the user's environment, as sudo would be.
	inner := strings.Join(append([]string{"env -u VIRTUAL_ENV PATH=/usr/bin:/bin", binary},
		runArguments(dir, "sh", "-c", `'id -u; id -g; echo $HOME $SUDO_UID'`)...), " ")
	cmd := allocscope(t, "run")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", inner + "; exit $?"}
	cmd.Env = append(cmd.Env, "SUDO_UID="+itoa(nobody), "SUDO_GID="+itoa(nobody), "VIRTUAL_ENV=/v")
	c := begin(t, cmd)
	c.mustPrint("65534\n65534\n/nonexistent\n")
	mustSay(t, "stderr", c.stderr.String(),
		"of your environment sudo has dropped VIRTUAL_ENV, and replaced PATH")
	mustBeOf(t, filepath.Join(dir, folder.SummaryFile), nobody)
}
