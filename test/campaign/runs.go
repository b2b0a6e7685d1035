package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/run/child"
)

// wantedResult is a command's output, and how it ends.
type wantedResult struct {
	output string
	status int
	signal syscall.Signal // 0: it exits
}

// The parts of a run.
var (
	launcher = (*round).own
	tracer   = partOf("run-tracer")
	reader   = partOf("allocscope-reader", "allocscope-objects")
	remover  = partOf(child.RemoverName)
	witness  = partOf(child.WitnessName)
)

var runFaults = []fault{
	ofRun(fault{name: "run"}, traced),
	ofRun(fault{name: "run: kill -9 of the launcher", inject: killed(launcher)}, launcherKilled),
	ofRun(fault{name: "run: kill -9 of the tracer part", inject: killed(tracer)}),
	ofRun(fault{name: "run: kill -9 of the reading children", inject: killed(reader)}, traced),
	ofRun(fault{name: "run: kill -9 of the command", inject: killed(theCommand)}, commandKilled),
	ofRun(fault{name: "run: kill -9 of the remover", inject: killed(remover)}, traced),
	ofRun(fault{name: "run: kill -9 of the witness", inject: killed(witness)}, traced),
	ofRun(fault{name: "run: kill -9 of all", inject: killAll, leavesShim: true},
		launcherKilled, commandKilled),
	ofRun(fault{name: "run: stopped launcher", inject: stop(launcher)}, traced),
	ofRun(fault{name: "run: stopped tracer part", inject: stop(tracer)}, traced),
	ofRun(fault{name: "run: stopped reading children", inject: stop(reader)}, traced),
	ofRun(fault{name: "run: stopped command", inject: stop(theCommand)}, traced),
	ofRun(fault{name: "run: stopped remover", inject: stop(remover)}, traced),
	ofRun(fault{name: "run: interrupted tracer part", inject: kill(unix.SIGINT, tracer)}),
	ofRun(fault{name: "run: folder of the shim removed", inject: removeShim}),
	ofRun(fault{name: "run: folder of the shim replaced", inject: replaceShim, leavesShim: true}),
	ofRun(fault{name: "run: sudo", prepare: withSudo("sudo")}, traced),
	ofRun(fault{name: "run: sudo refuses", prepare: withSudo("refuses"), check: checkRefused}),
	ofRun(fault{name: "run: storm of forks", command: runOf(forkStorm)}, traced),
	ofRun(fault{name: "run: ends at once", command: runOf(endAtOnce)}, traced),
	ofRun(fault{name: "run: full disk", prepare: fullDisk}),
}

// ofRun completes a fault of a run: the command, and the check of its end.
func ofRun(f fault, allowed ...exemption) fault {
	if f.command == nil {
		f.command = runOf(work)
	}
	if f.check == nil {
		f.check = checkRun(allowed...)
	}
	return f
}

func killed(of func(*round) []int) func(*round) error { return kill(unix.SIGKILL, of) }

// workText keeps memory, starts programs, and prints a result that depends on all that it keeps.
const workText = `import hashlib, subprocess, sys, time
steps, pause = int(sys.argv[1]), float(sys.argv[2])
digest, kept = hashlib.sha256(), []
for step in range(steps):
    kept.append(bytes([step % 251]) * 50000)
    digest.update(kept[step // 2])
    if step % 10 == 0:
        echo = subprocess.run(["/bin/echo", str(step)], stdout=subprocess.PIPE)
        digest.update(echo.stdout)
    time.sleep(pause)
print(digest.hexdigest())
sys.exit(7)`

// work is a command whose result is known from a run without allocscope.
func work(r *round) ([]string, wantedResult) {
	const stepsASecond = 20
	call := func(pause string) []string {
		return []string{
			"/usr/bin/python3", "-c", workText, strconv.Itoa(r.seconds * stepsASecond), pause,
		}
	}

	arguments := call("0")
	output, _ := exec.Command(arguments[0], arguments[1:]...).Output() // which ends with 7

	return call("0.05"), wantedResult{output: string(output), status: 7}
}

// forkStorm starts programs and copies of itself as fast as it can.
func forkStorm(r *round) ([]string, wantedResult) {
	const text = `for i in $(seq $1); do ( : ) & ( /bin/true; ( : ) & ); done; wait; echo $i; exit 9`
	count := strconv.Itoa(100 * r.seconds)
	return []string{"bash", "-c", text, "storm", count}, wantedResult{output: count + "\n", status: 9}
}

// endAtOnce has hardly begun when it ends.
func endAtOnce(r *round) ([]string, wantedResult) {
	switch r.random.IntN(3) {
	case 0:
		return []string{"true"}, wantedResult{}
	case 1:
		return []string{"sh", "-c", "echo x; exit 5"}, wantedResult{output: "x\n", status: 5}
	}

	return []string{"sh", "-c", "kill -TERM $$"}, wantedResult{signal: unix.SIGTERM}
}

// runOf runs a command below allocscope.
func runOf(command func(*round) ([]string, wantedResult)) func(*round) []string {
	return func(r *round) []string {
		arguments, w := command(r)
		r.wanted = w
		return append([]string{
			r.allocscope, "run", "--output", r.output, "--overhead", r.overhead(), "--",
		}, arguments...)
	}
}

// partOf finds the processes of the round whose argument 0 or 1 is one of the names.
func partOf(names ...string) func(*round) []int {
	return func(r *round) (pids []int) {
		for _, pid := range r.started() {
			isNamed := func(argument string) bool { return slices.Contains(names, argument) }
			if slices.ContainsFunc(argumentsOf(pid, 2), isNamed) {
				pids = append(pids, pid)
			}
		}

		return pids
	}
}

// argumentsOf returns the first arguments of a process.
func argumentsOf(pid, count int) []string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	arguments := strings.Split(string(raw), "\x00")
	return arguments[:min(count, len(arguments))]
}

// theCommand finds the process that is, or becomes, the command.
func theCommand(r *round) []int {
	if pid := r.commandPID(); pid != 0 {
		return []int{pid}
	}
	return partOf(child.StarterName)(r)
}

// commandPID is the PID of the command that was started; 0: none was.
func (r *round) commandPID() (pid int) {
	_, line, _ := strings.Cut(r.said(), "tracing PID ")
	_, _ = fmt.Sscanf(line, "%d", &pid)
	return pid
}

// killAll kills every process of the run, in any order.
func killAll(r *round) error {
	for range 2 { // some have started others meanwhile
		pids := r.started()
		r.random.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
		for _, pid := range pids {
			_ = syscall.Kill(pid, unix.SIGKILL) // it may have ended
			time.Sleep(time.Duration(r.random.IntN(20)) * time.Millisecond)
		}
	}
	return nil
}

// shimFolder is the folder of the run's shim; empty: there is none now.
func (r *round) shimFolder() string {
	for _, pid := range remover(r) {
		if arguments := argumentsOf(pid, 2); len(arguments) == 2 {
			return arguments[1]
		}
	}
	return ""
}

func removeShim(r *round) error {
	if folder := r.shimFolder(); folder != "" {
		return os.RemoveAll(folder)
	}
	return nil
}

// replaceShim puts another folder in the place of the shim's, which nobody may change.
func replaceShim(r *round) error {
	folder := r.shimFolder()
	names, err := os.ReadDir(folder)
	if folder == "" || err != nil || len(names) == 0 {
		return nil //nolint:nilerr // it is not there now
	}

	if err := os.Rename(folder, folder+movedSuffix); err != nil {
		return nil //nolint:nilerr // it is gone
	}
	defer os.RemoveAll(folder)

	if err := os.Mkdir(folder, 0o711); err != nil {
		return err
	}
	lock, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH); err != nil { // other sessions leave it
		return err
	}

	other, text := filepath.Join(folder, names[0].Name()), []byte("of somebody else")
	if err := os.WriteFile(other, text, 0o600); err != nil {
		return err
	}

	for len(remover(r)) > 0 { // it ends last
		time.Sleep(100 * time.Millisecond)
	}

	if found, err := os.ReadFile(other); err != nil || string(found) != string(text) {
		return fmt.Errorf("another file in the place of the shim: %q, %w", found, err)
	}
	return nil
}

// withSudo has a user run allocscope who needs a sudo, in a folder of the programs.
func withSudo(folder string) func(*round, *[]string) (func(), error) {
	const nobody = 65534
	return func(r *round, command *[]string) (func(), error) {
		user := strconv.Itoa(nobody)
		path := "PATH=" + filepath.Join(r.programs, folder) + ":/usr/bin:/bin"
		*command = append([]string{
			"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "env", path,
		}, *command...)

		return func() {}, os.Chown(r.folder, nobody, nobody)
	}
}

// Parts of a run that may be otherwise than wanted.
type exemption int

const (
	launcherKilled exemption = iota
	commandKilled
	// traced: not even the trace may be lost.
	traced
)

// checkRun checks that the command has printed and ended as it does without allocscope, and that
// the launcher has ended as the command. A fault before the start may have kept it from starting.
func checkRun(allowed ...exemption) func(*round) error {
	return func(r *round) error {
		output, own := textOf(r.printed), r.command.ProcessState.Sys().(syscall.WaitStatus)
		isKilled := own.Signaled() && own.Signal() == unix.SIGKILL
		may := func(e exemption) bool { return isKilled && slices.Contains(allowed, e) }

		switch {
		case output == "" && may(commandKilled):
			return nil
		case may(launcherKilled):
			return r.checkOrphan(output)
		case output == "" && own.ExitStatus() == 2:
			if slices.Contains(allowed, traced) {
				return errors.New("the command was not started")
			}
			return nil
		case !r.wanted.is(output, unix.WaitStatus(own)):
			return fmt.Errorf("run has printed %q and ended with %v, want %+v", output, own, r.wanted)
		case slices.Contains(allowed, traced) && !hasFiles(r.output):
			return errors.New("the folder is not complete")
		}
		return nil
	}
}

// checkOrphan checks the command of a launcher that was killed.
func (r *round) checkOrphan(output string) error {
	status, isKnown := r.orphans[r.commandPID()]
	switch {
	case output == "" && r.commandPID() == 0:
		return nil
	case output == "" && status.ExitStatus() == child.StatusNotExecutable:
		return nil // the launcher could not let it start any more
	case !isKnown || !r.wanted.is(output, status):
		return fmt.Errorf("the command has printed %q and ended with %v (known: %t), want %+v", output,
			status, isKnown, r.wanted)
	}
	return nil
}

// is reports whether a command has ended as wanted.
func (w wantedResult) is(output string, status unix.WaitStatus) bool {
	if status.Signaled() {
		return output == w.output && status.Signal() == w.signal
	}

	return output == w.output && w.signal == 0 && status.ExitStatus() == w.status
}

// checkRefused checks that nothing was started.
func checkRefused(r *round) error {
	status, output := r.command.ProcessState.ExitCode(), textOf(r.printed)
	if status != 2 || output != "" || exists(r.output) {
		return fmt.Errorf("a refused run ended with %d and printed %q; its folder is there: %t", status,
			output, exists(r.output))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
