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

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func mustRefuse(t *testing.T, pid int, want error, message string) {
	t.Helper()
	p, err := Open(pid)
	if err == nil {
		p.Close()
	}
	if !errors.Is(err, want) {
		t.Fatalf("pid %d: %v, want %v", pid, err, want)
	}
	if !strings.Contains(err.Error(), message) || !strings.Contains(err.Error(), strconv.Itoa(pid)) {
		t.Errorf("pid %d: %q does not contain %q", pid, err, message)
	}
}

func TestOpen(t *testing.T) {
	t.Run("no such PID", func(t *testing.T) {
		for _, pid := range []int{0, -1, -1 << 31, 1<<22 + 1, 1 << 31, 1 << 40} { // PIDs are below 2^22
			mustRefuse(t, pid, ErrNotFound, "no such process")
		}
		ended := exec.Command("true")
		tracertest.NoError(t, ended.Run())
		mustRefuse(t, ended.Process.Pid, ErrNotFound, "no such process")
	})

	t.Run("thread", func(t *testing.T) {
		var refused int
		for _, thread := range must(os.ReadDir("/proc/self/task")) {
			if tid := must(strconv.Atoi(thread.Name())); tid != os.Getpid() {
				mustRefuse(t, tid, ErrThread, fmt.Sprintf("--pid %d", os.Getpid()))
				refused++
			}
		}
		if refused == 0 {
			t.Fatal("this process has one thread: nothing was tried")
		}
	})

	t.Run("kernel thread", func(t *testing.T) {
		if name := readFile(t, "/proc/2/comm"); string(name) != "kthreadd\n" {
			t.Fatalf("pid 2 is %q: run the tests on the host, not in a PID namespace", name)
		}
		mustRefuse(t, 2, ErrKernelThread, "no memory of its own")
	})

	t.Run("zombie", func(t *testing.T) {
		child := exec.Command("true")
		tracertest.NoError(t, child.Start())
		defer child.Wait()
		awaitState(t, child.Process.Pid, unix.WEXITED)
		mustRefuse(t, child.Process.Pid, ErrZombie, "waits for its parent")
	})

	t.Run("another user's process", func(t *testing.T) {
		p := startEcho(t, exec.Command("cat"))
		for uid, want := range map[uint32]string{65534: ErrPermission.Error(), 0: "<nil>"} {
			opener := exec.Command("/proc/self/exe")
			opener.Env = append(os.Environ(), fmt.Sprintf("%s=%d", openPIDVariable, p.PID))
			opener.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			opener.Dir = "/"
			out, err := opener.CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("uid %d gets %q, %v; want %q", uid, out, err, want)
			}
		}
	})
}

func TestProcessDescription(t *testing.T) {
	p := startEcho(t, exec.Command("cat", "-", "/dev/null", "\x1b]0;title\x07", ""))
	want := must(os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID)))
	if p.Name != "cat" || p.Executable != want {
		t.Errorf("%+v", p)
	}
	const arguments = `["cat" "-" "/dev/null" "?]0;title?"]`
	if got := fmt.Sprintf("%q", p.Arguments); got != arguments {
		t.Errorf("arguments %s, want %s", got, arguments)
	}
}

func TestEnvironment(t *testing.T) {
	command := exec.Command("cat")
	command.Env = []string{"A=1=2", "EMPTY=", "NAME", "HOSTILE=\xff\n", "OTHER=x"}
	got := startEcho(t, command).Environment("A", "EMPTY", "NAME", "HOSTILE", "ABSENT")
	if want := "map[A:1=2 EMPTY: HOSTILE:??]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestExited(t *testing.T) {
	t.Run("process exits", func(t *testing.T) {
		command := exec.Command("cat")
		p := startEcho(t, command)
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
		if p.Alive() {
			t.Error("a zombie is alive")
		}
		command.Wait()
		if p.Alive() {
			t.Error("alive after it was reaped")
		}

		_, statusErr := p.Status()
		_, statErr := p.Stat()
		_, sampleErr := p.Sample()
		_, readStatErr := ReadStat(p.PID)
		for _, err := range []error{statusErr, statErr, sampleErr, readStatErr, p.Refresh()} {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v of a process that is gone", err)
			}
		}
		if _, err := p.Maps(); err == nil {
			t.Error("it still has maps")
		}
	})

	t.Run("caller stops waiting", func(t *testing.T) {
		stop := make(chan struct{})
		done := openSelf(t).Exited(stop)
		close(stop)
		<-done
	})
}

func TestCommand(t *testing.T) {
	long := strings.Repeat("x", 60<<10)
	for _, c := range []struct {
		name      string
		arguments []string
		want      string
	}{
		{"none", nil, "name of its thread"},
		{"program", []string{"/bin/sleep", "-v"}, "sleep"},
		{"file", []string{"cat", "-", "/dev/null", "?]0;title?"}, "cat null"},
		{"script", []string{"/bin/python3", "-u", "/job/train.py", "x"}, "python3 train.py"},
		{"module", []string{"python3", "-u", "-m", "torch.run", "train.py"}, "python3 -m torch.run"},
		{"no module", []string{"python3", "-m"}, "python3"},
		{"code", []string{"python3", "-c", long}, "python3 -c"},
		{"shell", []string{"bash", "-e", "-c", "a long script; with /many words"}, "bash -c"},
		{"long program", []string{long}, long[:200] + "…"},
		{"long script", []string{"python3", long}, "python3 " + long[:192] + "…"},
		{"long module", []string{"python3", "-m", long}, "python3 -m " + long[:189] + "…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Process{Name: "name of its thread", Arguments: c.arguments}
			if got := p.Command(); got != c.want {
				t.Errorf("%.300q, want %.300q", got, c.want)
			}
		})
	}
}
