package process

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// livingThread leads to a thread that lives. A process is its living threads: once the main thread
// has ended (pthread_exit), the kernel shows the memory, the files and the program of the process
// in the directories of the others alone. A directory /proc/TID has all files of /proc/PID, for any
// thread, though /proc does not list it (proc(5)).
type livingThread struct {
	// dir is a directory of /proc, held open: of the main thread, and once that has ended, of a
	// thread that lives. Reads through it reach this process, or fail once it has exited, even if
	// its PID is used again. The descriptor keeps its number.
	dir *os.File
	// mainDir is the directory of the main thread; nil: it is dir.
	mainDir atomic.Pointer[os.File]
	// tid is the thread of dir; 0: the main thread.
	tid       atomic.Int64
	seen      atomic.Int64 // when the thread of dir was last seen to live, by Monotonic
	following sync.Mutex   // held while dir changes
}

// recheck has the next call of living look whether the thread lives.
func (l *livingThread) recheck() { l.seen.Store(0) }

// main returns the directory of the main thread.
func (l *livingThread) main() *os.File {
	if own := l.mainDir.Load(); own != nil {
		return own
	}
	return l.dir
}

// seenFor is how long a thread counts as living after it was seen to.
const seenFor = 100 * time.Millisecond

// living returns dir, which leads to a thread that lives unless the process has exited.
func (l *livingThread) living(pid int) *os.File {
	now := Monotonic()
	if now-time.Duration(l.seen.Load()) < seenFor {
		return l.dir
	}
	if hasMemory(pathIn(l.dir, "")) {
		l.seen.Store(int64(now))
		return l.dir
	}

	l.following.Lock()
	defer l.following.Unlock()
	for _, tid := range threadsIn(pathIn(l.main(), "task")) {
		if l.follow(pid, tid) {
			break
		}
	}
	return l.dir
}

// follow has dir lead to a thread of the process, if it lives.
func (l *livingThread) follow(pid, tid int) bool {
	folder := filepath.Join("/proc", strconv.Itoa(tid))
	thread, err := os.OpenFile(folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer thread.Close()

	raw, err := ReadFile(pathIn(thread, "status"))
	if err != nil || parseStatus(raw).TGID != pid || !hasMemory(pathIn(thread, "")) {
		return false // the TID may be of another process by now
	}

	if l.mainDir.Load() == nil {
		own, err := unix.FcntlInt(l.dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return false
		}
		l.mainDir.Store(os.NewFile(uintptr(own), l.dir.Name()))
	}
	if unix.Dup3(int(thread.Fd()), int(l.dir.Fd()), unix.O_CLOEXEC) != nil {
		return false
	}
	l.tid.Store(int64(tid))
	l.seen.Store(int64(Monotonic()))
	return true
}

// TID returns a thread of the process that lives: the main thread, unless that has ended.
func (p *Process) TID() int {
	p.recheck()
	p.living(p.PID)
	return cmp.Or(int(p.tid.Load()), p.PID)
}

func (l *livingThread) closeFolders() error {
	if l.dir == nil {
		return nil
	}
	err := l.dir.Close()
	l.dir = nil
	if own := l.mainDir.Swap(nil); own != nil {
		err = errors.Join(err, own.Close())
	}
	return err
}

// hasMemory reports whether a thread has an address space, by its folder in /proc: its size comes
// first in statm. A thread that has ended, and a kernel thread, have none.
func hasMemory(folder string) bool {
	raw, err := ReadFile(filepath.Join(folder, "statm"))
	return err == nil && len(raw) > 0 && !bytes.HasPrefix(raw, []byte("0 "))
}

// threadsIn lists the TIDs in a folder /proc/PID/task, the smallest first.
func threadsIn(folder string) (tids []int) {
	task, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer task.Close()

	names, _ := task.Readdirnames(maxThreads) // with an error there are fewer
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	slices.Sort(tids)
	return tids
}

// LivingTID returns a thread of a process that has its memory: the main thread, or another one
// where that has ended; 0: none has.
func LivingTID(pid int) int {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	for _, tid := range append([]int{pid}, threadsIn(filepath.Join(folder, "task"))...) {
		if hasMemory(filepath.Join("/proc", strconv.Itoa(tid))) {
			return tid
		}
	}
	return 0
}
