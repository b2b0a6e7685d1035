package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// maxThreads bounds the threads that are read of a process.
const maxThreads = 1 << 14

// A Thread is a thread of a process, at the moment at which it was read.
type Thread struct {
	TID  int
	Name string // printable; it is the program's choice
	// InnerTID is the ID that the thread itself sees, in its namespace.
	InnerTID int
	// StackPointer is the pointer of a thread that waits in the kernel; 0: it runs, or its
	// registers cannot be read.
	StackPointer uint64
}

// Threads returns the threads that live. Those that end meanwhile are left out. The error wraps
// os.ErrNotExist if the process is gone.
func (c *counters) Threads() ([]Thread, error) {
	folder, err := c.open("task")
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	defer folder.Close()

	names, err := folder.Readdirnames(maxThreads)
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	var threads []Thread
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		thread, err := c.thread(tid)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			threads = append(threads, thread)
		}
	}
	return threads, nil
}

// innerID is the ID of a thread in the innermost PID namespace, by the fields of its status.
func innerID(status map[string]string, outer int) int {
	ids := strings.Fields(status["NSpid"])
	if len(ids) == 0 {
		return outer
	}
	return int(number(ids[len(ids)-1]))
}

// thread reads the kernel's data on a thread. task/TID/syscall ends with the stack pointer and the
// program counter of a thread that waits (proc_pid_syscall(5)).
func (c *counters) thread(tid int) (Thread, error) {
	folder := filepath.Join("task", strconv.Itoa(tid))
	status, err := c.read(filepath.Join(folder, "status"))
	if err != nil {
		return Thread{}, err
	}
	fields := parseFields(status)
	if state := fields["State"]; state != "" && isEnded(state[0]) {
		return Thread{}, os.ErrNotExist
	}
	thread := Thread{TID: tid, InnerTID: innerID(fields, tid), Name: growth.Printable(fields["Name"])}

	const maxSyscallBytes = 256
	registers, err := c.readLocking(filepath.Join(folder, "syscall"), maxSyscallBytes)
	if errors.Is(err, os.ErrNotExist) || c.Stalled() != nil {
		return Thread{}, err
	}
	if words := bytes.Fields(registers); len(words) >= 3 {
		thread.StackPointer, _ = strconv.ParseUint(string(words[len(words)-2]), 0, 64)
	}
	return thread, nil
}
