package process

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The kernel's texts, as it writes them.
func TestHeldWords(t *testing.T) {
	const epoll = "pos:\t0\nflags:\t02\nmnt_id:\t16\nino:\t1057\n" +
		"tfd:        5 events:       19 data:     7f12345678a0  pos:0 ino:61af sdev:7\n" +
		"tfd:        8 events: 80000019 data: ffffffffffffffff  pos:0 ino:61b0 sdev:7\n" +
		"tfd: 9 events: 19 data: nonsense\ntfd: 10 data:\n"
	if got := epollData(epoll); !slices.Equal(got, []uint64{0x7f12345678a0, 1<<64 - 1}) {
		t.Errorf("%#x", got)
	}
	const timers = "ID: 1\nsignal: 60/00007fff86e452a8\nnotify: signal/pid.2634\nClockID: 0\n" +
		"ID: 0\nsignal: 60/0000000000000001\nnotify: thread/pid.2634\nClockID: 1\nsignal: 12\n"
	if got := timerValues(timers); !slices.Equal(got, []uint64{0x7fff86e452a8, 1}) {
		t.Errorf("%#x", got)
	}
}

// TestHidden has a pointer in a pipe of a process, which nothing else shows.
func TestHidden(t *testing.T) {
	from, to, err := os.Pipe()
	tracertest.NoError(t, err)
	defer from.Close()
	defer to.Close()
	other := exec.Command("sleep", "1000") // this process has more pipes: its output, other tests'
	other.ExtraFiles = []*os.File{from, to}
	tracertest.NoError(t, other.Start())
	defer func() {
		_ = other.Process.Kill() // it may have ended
		_ = other.Wait()
	}()
	p := open(t, other.Process.Pid)

	isHidden := func() bool {
		held := tracertest.Must(p.HeldByKernel())(t)
		return held.IsHidden
	}
	if isHidden() {
		t.Error("an empty pipe hides words")
	}
	tracertest.Must(to.Write(make([]byte, 8)))(t)
	if !isHidden() {
		t.Error("a pipe with a word hides none")
	}
}

func TestDrivers(t *testing.T) {
	for file, want := range map[string]bool{
		"/dev/fuse": true, "/dev/infiniband/uverbs0": true, "/dev/null": false, "/dev/pts/3": false,
		"/dev/shm/sem.a": false, "/home/dev/fuse": false, "socket:[1]": false,
	} {
		if got := isDriver(file); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}
