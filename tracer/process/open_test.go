package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func mustRefuse(t *testing.T, pid int, want error, says string) {
	t.Helper()
	p, err := Open(pid)
	if err == nil {
		p.Close()
	}
	if !errors.Is(err, want) {
		t.Fatalf("pid %d: %v, want %v", pid, err, want)
	}
	if !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), strconv.Itoa(pid)) {
		t.Errorf("pid %d: %q does not say %q", pid, err, says)
	}
}

func TestAPIDWithoutAProcessIsRefused(t *testing.T) {
	for _, pid := range []int{0, -1, -1 << 31, 1<<22 + 1, 1 << 31, 1 << 40} { // a PID is less than 2^22
		mustRefuse(t, pid, ErrNotFound, "no such process")
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, ended.Process.Pid, ErrNotFound, "no such process")
}

func TestAThreadIsRefusedAndItsProcessNamed(t *testing.T) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var refused int
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if tid != os.Getpid() {
			mustRefuse(t, tid, ErrThread, fmt.Sprintf("--pid %d", os.Getpid()))
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("this process has one thread: nothing was tried")
	}
}

func TestAKernelThreadIsRefused(t *testing.T) {
	name, err := os.ReadFile("/proc/2/comm")
	if err != nil || string(name) != "kthreadd\n" {
		t.Fatalf("pid 2 is %q, %v: run the tests on the host, not in a PID namespace", name, err)
	}
	mustRefuse(t, 2, ErrKernelThread, "no memory of its own")
}

func TestAZombieIsRefused(t *testing.T) {
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	awaitState(t, child.Process.Pid, unix.WEXITED)
	mustRefuse(t, child.Process.Pid, ErrZombie, "waits for its parent")
}

func TestAnotherUsersProcessIsRefusedWithoutPrivilege(t *testing.T) {
	pid := startEcho(t, exec.Command("cat"))
	for uid, want := range map[uint32]string{65534: ErrPermission.Error(), 0: "<nil>"} {
		opener := exec.Command("/proc/self/exe")
		opener.Env = append(os.Environ(), fmt.Sprintf("%s=%d", openOnly, pid))
		opener.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		opener.Dir = "/"
		out, err := opener.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("uid %d gets %q, want %q", uid, out, want)
		}
	}
}

func TestAnOpenProcessIsDescribed(t *testing.T) {
	command := exec.Command("cat", "-", "/dev/null", "\x1b]0;title\x07", "")
	p := open(t, startEcho(t, command))
	want, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != command.Process.Pid || p.Name != "cat" || p.Executable != want {
		t.Errorf("%+v", p)
	}
	if got, want := fmt.Sprintf("%q", p.Arguments), `["cat" "-" "/dev/null" "?]0;title?"]`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	if got := p.Command(); got != "cat null" {
		t.Errorf("command %q, want %q", got, "cat null")
	}
}

func TestTheEndOfAProcessIsSeen(t *testing.T) {
	command := exec.Command("cat")
	p := open(t, startEcho(t, command))
	exited := p.Exited(nil)
	if !p.Alive() {
		t.Error("not alive before its end")
	}
	select {
	case <-exited:
		t.Error("exited before its end")
	default:
	}
	command.Process.Kill()
	<-exited
	if p.Alive() { // a zombie
		t.Error("alive after its end")
	}
	command.Wait()
	if p.Alive() {
		t.Error("alive after its burial")
	}
	if _, err := p.Status(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("status of what is gone: %v", err)
	}
	if _, err := p.Maps(); err == nil {
		t.Error("it still has maps")
	}
}

func TestAWatchThatIsStoppedEnds(t *testing.T) {
	stop := make(chan struct{})
	done := openSelf(t).Exited(stop)
	close(stop)
	<-done
}

func TestACommandIsNamedByWhatItRuns(t *testing.T) {
	for want, arguments := range map[string][]string{
		"python3 train.py":       {"/usr/bin/python3", "-u", "/home/me/train.py", "--lr", "1"},
		"python3 -m torch.run":   {"python3", "-u", "-m", "torch.run", "train.py"},
		"python3":                {"python3", "-m"},
		"sh -c":                  {"/bin/sh", "-c", "a long script; with /many words"},
		"bash -c":                {"bash", "-e", "-c", "x"},
		"sleep 5":                {"sleep", "5"},
		"uv run":                 {"uv", "run", "train.py"},
		"the name of its thread": nil,
	} {
		p := &Process{Name: "the name of its thread", Arguments: arguments}
		if got := p.Command(); got != want {
			t.Errorf("%q is %q, want %q", arguments, got, want)
		}
	}
}
