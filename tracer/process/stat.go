package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stat is what /proc/PID/stat tells (proc_pid_stat(5)).
type Stat struct {
	State  byte // as in ps
	Parent int
	// Page faults since the process began: minor ones without I/O, major ones with.
	MinorFaults, MajorFaults int64
	// Start is when the process began, since the boot of the machine. Executing a program does not change it.
	Start time.Duration
	// Image tells the program that the process executes now from those that it executed before. A fork has its parent's
	// until it executes a program of its own.
	Image Image
}

// An Image is where the kernel has put a program: an execution gives each a place of its own, unless randomization is off
// and the same program is executed with the same arguments.
type Image struct{ code, stack, heap int64 }

// HasEnded tells that there is no program any more: its memory is being taken down, which takes long where there is much, or
// its main thread has ended.
func (i Image) HasEnded() bool { return i == Image{} }

// Fields of /proc/PID/stat, counted from the state, which is field 3 in the manual page.
const (
	statState       = 0
	statParent      = 1
	statMinorFaults = 7
	statMajorFaults = 9
	statStart       = 19
	statCode        = 23
	statStack       = 25
	statHeap        = 44
	statFields      = 45
)

// tick is the unit of times in /proc: USER_HZ is 100 on all architectures that we support.
const (
	tick     = time.Second / 100
	maxTicks = int64(1<<63-1) / int64(tick)
)

// Stat reads the counters of the process. A process that is gone gives an error that wraps os.ErrNotExist.
func (p *Process) Stat() (Stat, error) {
	raw, err := p.read("stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(raw)
}

// Ends tells that the process has exited or has no program any more (Image.HasEnded).
func (p *Process) Ends() bool {
	stat, err := p.Stat()
	return err != nil || stat.Image.HasEnded() || !p.Alive()
}

// ReadStat is Stat of a process that nobody holds: the next reading may be of another one with that PID.
func ReadStat(pid int) (Stat, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Stat{}, fmt.Errorf("read stat: %w", err)
	}
	return parseStat(raw)
}

// parseStat reads the fields behind the name, which stands in parentheses and in which anything may stand.
func parseStat(raw []byte) (Stat, error) {
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < statFields {
		return Stat{}, fmt.Errorf("read stat: %d fields", len(fields))
	}
	start := number(fields[statStart])
	if start == Unknown || start > maxTicks {
		return Stat{}, fmt.Errorf("read stat: start time %.20q", fields[statStart])
	}
	return Stat{
		State:       fields[statState][0],
		Parent:      int(number(fields[statParent])),
		MinorFaults: number(fields[statMinorFaults]),
		MajorFaults: number(fields[statMajorFaults]),
		Start:       time.Duration(start) * tick,
		Image:       Image{number(fields[statCode]), number(fields[statStack]), number(fields[statHeap])},
	}, nil
}

// StartBreak is where the program break was when the process began (start_brk of proc_pid_stat(5)); 0 if that is unknown.
func (p *Process) StartBreak() uint64 {
	stat, err := p.Stat()
	if err != nil {
		return 0
	}
	return uint64(max(stat.Image.heap, 0))
}

// Age is the time since the process began: what CLOCK_BOOTTIME says now, less its start. Ticks make it up to 10 ms too long.
func (s Stat) Age() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // cannot happen: the clock always exists
	}
	return max(0, time.Duration(now.Nano())-s.Start)
}
