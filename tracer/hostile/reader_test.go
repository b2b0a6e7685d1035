package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// text is an open file with a content.
func text(t *testing.T, content string) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	tracertest.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	f := tracertest.Must(Open(nil, path, 0, 0))(t)
	t.Cleanup(func() { f.Close() })
	f.mayStall = true // so that the child reads it, whatever the file system
	return f
}

func TestReader(t *testing.T) {
	t.Run("reads what the file has", testReads)
	t.Run("gives up a child that does not answer", testGivesUp)
	t.Run("starts no more children than may hang", testBoundsLost)
	t.Run("a hung child that has ended frees its place", testFreesLost)
	t.Run("child ends with us", testChildEnds)
}

func testReads(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", maxBytes/16+1000)
	f := text(t, content)
	for _, c := range []struct{ offset, size int }{
		{0, 1}, {5, 100}, {0, len(content)}, {len(content) - 7, 7}, {maxBytes - 1, 2},
	} {
		got := make([]byte, c.size)
		if n, err := f.ReadAt(got, int64(c.offset)); n != c.size || err != nil ||
			string(got) != content[c.offset:c.offset+c.size] {
			t.Errorf("%d bytes at %d: %d, %v", c.size, c.offset, n, err)
		}
	}

	last := make([]byte, 8)
	if n, err := f.ReadAt(last, int64(len(content)-3)); n != 3 || err == nil {
		t.Errorf("across the end: %d, %v", n, err)
	}
	if all, err := f.ReadAll(1 << 30); err != nil || string(all) != content {
		t.Errorf("ReadAll: %d bytes of %d, %v", len(all), len(content), err)
	}
	if some, err := f.ReadAll(100); err != nil || string(some) != content[:100] {
		t.Errorf("ReadAll up to a limit: %q, %v", some, err)
	}
}

// withTimeout makes the child seem to hang by stopping it: its answer comes too late.
func withTimeout(t *testing.T, timeout time.Duration) {
	t.Helper()
	child.timeout = timeout
	stalled.files = nil // an inode may belong to another file by now
	t.Cleanup(func() {
		child.mu.Lock()
		child.timeout, child.lost, stalled.files = readTimeout, nil, nil
		child.mu.Unlock()
	})
}

func stopChild(t *testing.T) (pid int) {
	t.Helper()
	child.mu.Lock()
	defer child.mu.Unlock()
	tracertest.NoError(t, unix.Kill(child.pid, unix.SIGSTOP))
	return child.pid
}

func testGivesUp(t *testing.T) {
	f, other := text(t, "text"), text(t, "other")
	buffer := make([]byte, 4)
	tracertest.Must(f.ReadAt(buffer, 0))(t)

	withTimeout(t, 50*time.Millisecond)
	stopped := stopChild(t)
	if _, err := f.ReadAt(buffer, 0); !errors.Is(err, ErrStalled) {
		t.Fatalf("a read by a child that does not answer: %v", err)
	}
	child.timeout = readTimeout // a new child has time to start
	again := tracertest.Must(Open(nil, f.Name(), 0, 0))(t)
	defer again.Close()
	again.mayStall = true
	if _, err := again.ReadAt(buffer, 0); !errors.Is(err, ErrStalled) {
		t.Errorf("the file is read again: %v", err)
	}
	if n, err := other.ReadAt(buffer, 0); n != 4 || err != nil || string(buffer) != "othe" {
		t.Errorf("another file: %q, %v", buffer, err)
	}
	if child.pid == stopped {
		t.Errorf("PID %d is still asked", stopped)
	}
}

func testBoundsLost(t *testing.T) {
	withTimeout(t, readTimeout)
	for range maxLost {
		child.lost = append(child.lost, make(chan struct{}))
	}
	loseChild(t)
	if _, err := Open(nil, "/bin/cat", 0, 0); !errors.Is(err, ErrStalled) {
		t.Errorf("after %d children were lost: %v", maxLost, err)
	}
}

// testFreesLost loses as many children as may hang. Nothing keeps these from ending.
func testFreesLost(t *testing.T) {
	withTimeout(t, readTimeout)
	var lost []chan struct{}
	for range maxLost {
		lost = append(lost, loseChild(t))
	}

	for _, ended := range lost {
		<-ended
	}

	if f, err := Open(nil, "/bin/cat", 0, 0); err != nil {
		t.Errorf("after %d lost children have ended: %v", maxLost, err)
	} else {
		f.Close()
	}
}

// loseChild has the child given up, if one can be started, and returns a channel closed at its end.
func loseChild(t *testing.T) (ended chan struct{}) {
	t.Helper()
	if child.socket == 0 && len(child.lost) >= maxLost {
		return nil
	}
	tracertest.Must(text(t, "text").ReadAt(make([]byte, 4), 0))(t)
	f := text(t, "text")
	ended = child.ended
	child.timeout = 50 * time.Millisecond
	stopChild(t)
	if _, err := f.ReadAt(make([]byte, 4), 0); !errors.Is(err, ErrStalled) {
		t.Fatal(err)
	}
	child.timeout, stalled.files = readTimeout, nil
	return ended
}

// testChildEnds runs itself as another process, which is killed while it has a child.
func testChildEnds(t *testing.T) {
	const variable = "ALLOCSCOPE_TEST_READER"
	if os.Getenv(variable) != "" {
		tracertest.Must(text(t, "text").ReadAt(make([]byte, 4), 0))(t)
		fmt.Printf("child %d\n", child.pid)
		select {}
	}

	us := exec.Command("/proc/self/exe", "-test.run", "^TestReader$/^child_ends")
	us.Env = append(os.Environ(), variable+"=1", "TMPDIR="+t.TempDir()) // it is killed
	output := tracertest.Must(us.StdoutPipe())(t)
	tracertest.NoError(t, us.Start())
	var pid int
	tracertest.Must(fmt.Fscanf(output, "child %d\n", &pid))(t)
	status := fmt.Sprintf("/proc/%d/cmdline", pid)
	if name, err := os.ReadFile(status); err != nil || !bytes.HasPrefix(name, []byte(Name)) {
		t.Fatalf("the child is %q, %v", name, err)
	}

	tracertest.NoError(t, us.Process.Kill())
	_ = us.Wait()
	tracertest.Eventually(t, fmt.Sprintf("PID %d has ended", pid), func() bool {
		name, err := os.ReadFile(status)
		return err != nil || len(name) == 0
	})
}
