package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// Unknown marks a number that the kernel does not provide.
const Unknown = growth.Unknown

// Status is the content of /proc/PID/status (proc_pid_status(5)). Sizes are in bytes.
type Status struct {
	Name               string // printable
	State              byte   // as in ps: R, S, D, T (stopped), Z, ...
	TGID, Parent       int
	Virtual, RSS, Swap int64 // Unknown for a process without memory of its own
	Threads            int64

	// Filtered is set if a seccomp filter applies to the main thread, and ShadowStack if the
	// processor compares its returns with a shadow stack.
	Filtered, ShadowStack bool

	// Peak is the highest RSS so far, VmHWM. Unknown as RSS is.
	Peak int64

	// MainEnded is set where the main thread has ended and others live. State and sizes are then as
	// one of them has them, and Threads counts them alone.
	MainEnded bool

	// Anonymous, File and Shared are the parts of RSS: RssAnon, RssFile and RssShmem. PageTables is
	// VmPTE.
	Anonymous, File, Shared, PageTables int64
}

// counters are the texts and numbers that the kernel publishes of a process.
type counters struct{ procFiles }

// Status reads the state of the process. The error wraps os.ErrNotExist if the process is gone.
func (c *counters) Status() (Status, error) {
	raw, err := c.readMain("status")
	if err != nil {
		return Status{}, err
	}
	own := parseStatus(raw)
	if !isEnded(own.State) {
		return own, nil
	}

	c.recheck()
	living, err := c.readStatus("status")
	if err != nil || isEnded(living.State) {
		return own, nil //nolint:nilerr // the last thread has ended meanwhile
	}
	living.Name, living.Parent, living.MainEnded = own.Name, own.Parent, true
	living.Threads = max(1, living.Threads-1) // the main thread counts until the process ends
	return living, nil
}

// ReadStatus reads the state of a thread.
func ReadStatus(tid int) (Status, error) {
	raw, err := ReadFile(filepath.Join("/proc", strconv.Itoa(tid), "status"))
	if err != nil {
		return Status{}, err
	}
	return parseStatus(raw), nil
}

// isEnded reports whether a thread has ended, by its state: it is a zombie, or dead.
func isEnded(state byte) bool { return state == 'Z' || state == 'X' }

func (c *counters) readStatus(name string) (Status, error) {
	raw, err := c.read(name)
	if err != nil {
		return Status{}, err
	}

	return parseStatus(raw), nil
}

// parseStatus reads the lines that Status has. It makes no table of all lines: the agent reads some
// hundred of these files a second.
func parseStatus(raw []byte) Status {
	s := Status{
		TGID: Unknown, Parent: Unknown, Virtual: Unknown, RSS: Unknown, Swap: Unknown,
		Threads: Unknown, Anonymous: Unknown, File: Unknown, Shared: Unknown, Peak: Unknown,
		PageTables: Unknown,
	}
	for line := range bytes.Lines(raw) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "Name":
			s.Name = growth.Printable(string(value))
		case "State":
			if len(value) > 0 {
				s.State = value[0]
			}
		case "Tgid":
			s.TGID = int(number(string(value)))
		case "PPid":
			s.Parent = int(number(string(value)))
		case "VmSize":
			s.Virtual = kibibytesOf(string(value))
		case "VmRSS":
			s.RSS = kibibytesOf(string(value))
		case "VmHWM":
			s.Peak = kibibytesOf(string(value))
		case "VmSwap":
			s.Swap = kibibytesOf(string(value))
		case "RssAnon":
			s.Anonymous = kibibytesOf(string(value))
		case "RssFile":
			s.File = kibibytesOf(string(value))
		case "RssShmem":
			s.Shared = kibibytesOf(string(value))
		case "VmPTE":
			s.PageTables = kibibytesOf(string(value))
		case "Threads":
			s.Threads = number(string(value))
		case "Seccomp":
			s.Filtered = string(value) == "2" // SECCOMP_MODE_FILTER, <linux/seccomp.h>
		case "x86_Thread_features":
			s.ShadowStack = slices.Contains(strings.Fields(string(value)), "shstk")
		}
	}
	return s
}

// HasFilter reports whether a seccomp filter applies to any thread of the process.
func (c *counters) HasFilter() (bool, error) {
	status, err := c.Status()
	if err != nil || status.Filtered {
		return status.Filtered, err
	}

	threads, err := os.ReadDir(c.path("task"))
	if err != nil {
		return false, fmt.Errorf("list threads: %w", err)
	}
	for _, thread := range threads {
		status, err := c.readStatus(filepath.Join("task", thread.Name(), "status"))
		if err == nil && status.Filtered { // with an error, the thread has ended
			return true, nil
		}
	}
	return false, nil
}

// Stat is the part of /proc/PID/stat that we use (proc_pid_stat(5)).
type Stat struct {
	State  byte // as in ps
	Parent int

	// TID is the thread that has the memory of the process: the main thread, or one that lives where
	// that has ended.
	TID int

	// MinorFaults and MajorFaults count page faults since the process began: without and with I/O.
	MinorFaults, MajorFaults int64

	// Start is the time from the machine's boot to the start of the process. execve(2) keeps it.
	Start time.Duration

	// StartTicks is Start as the kernel has it, in ticks of 10 ms.
	StartTicks int64

	// Image identifies the program that the process executes now. A fork keeps its parent's image
	// until it executes a program of its own.
	Image Image
}

// An Image is where the kernel has placed a program: start_code, start_stack and start_brk. Each
// execve(2) changes it, unless randomization is off and the program and arguments are the same.
type Image struct{ code, stack, brk int64 }

// IsZero reports whether the process has no program any more. Its memory is being unmapped, which
// takes long for much memory, or its main thread has exited.
func (i Image) IsZero() bool { return i == Image{} }

// String distinguishes images, in files.
func (i Image) String() string { return fmt.Sprintf("%x-%x-%x", i.code, i.stack, i.brk) }

// Indices into the fields of /proc/PID/stat from the state on, which proc_pid_stat(5) numbers 3.
const (
	statState      = 0
	statPPID       = 1
	statMinFlt     = 7
	statMajFlt     = 9
	statStartTime  = 19
	statStartCode  = 23
	statStartStack = 25
	statStartBrk   = 44
	statFieldCount = 45
)

// A tick is the unit of times in /proc: USER_HZ is 100 on all architectures that we support.
const (
	tick     = time.Second / 100
	maxTicks = int64(1<<63-1) / int64(tick)
)

// Stat reads the counters of the process. The error wraps os.ErrNotExist if the process is gone.
func (c *counters) Stat() (Stat, error) {
	raw, err := c.readMain("stat")
	if err != nil {
		return Stat{}, err
	}
	own, err := parseStat(raw)
	if err != nil || !isEnded(own.State) {
		return own, err
	}
	c.recheck()
	if raw, err = c.read("stat"); err != nil {
		return own, nil //nolint:nilerr // the last thread has ended meanwhile
	}
	return own.withLiving(raw), nil
}

// withLiving returns the data of a process whose main thread has ended, by the stat of a thread that
// lives: the process began with its main thread.
func (s Stat) withLiving(raw []byte) Stat {
	living, err := parseStat(raw)
	if err != nil {
		return s
	}
	living.Parent, living.Start, living.StartTicks = s.Parent, s.Start, s.StartTicks
	return living
}

// ReadStat is Stat for a process that is not held open: the next call with the same PID may read
// another process.
func ReadStat(pid int) (Stat, error) {
	read := func(tid int) ([]byte, error) {
		return ReadFile(filepath.Join("/proc", strconv.Itoa(tid), "stat"))
	}
	raw, err := read(pid)
	if err != nil {
		return Stat{}, fmt.Errorf("read stat: %w", err)
	}
	own, err := parseStat(raw)
	if err != nil || !isEnded(own.State) {
		return own, err
	}
	if tid := LivingTID(pid); tid != 0 {
		if raw, err := read(tid); err == nil {
			return own.withLiving(raw), nil
		}
	}
	return own, nil
}

// parseStat reads the fields behind comm, which stands in parentheses and may hold any character.
func parseStat(raw []byte) (Stat, error) {
	var fields [statFieldCount][]byte // no garbage: a trace reads hundreds of them a second
	found := 0
	for field := range bytes.FieldsSeq(raw[bytes.LastIndexByte(raw, ')')+1:]) {
		if found < len(fields) {
			fields[found] = field
		}
		found++
	}
	if found < len(fields) {
		return Stat{}, fmt.Errorf("read stat: %d fields", found)
	}

	field := func(i int) int64 { return number(string(fields[i])) }
	start := field(statStartTime)
	if start == Unknown || start > maxTicks {
		return Stat{}, fmt.Errorf("read stat: start time %.20q", fields[statStartTime])
	}

	tid, _, _ := bytes.Cut(raw, []byte(" "))
	return Stat{
		TID:         int(number(string(tid))),
		State:       fields[statState][0],
		Parent:      int(field(statPPID)),
		MinorFaults: field(statMinFlt),
		MajorFaults: field(statMajFlt),
		Start:       time.Duration(start) * tick,
		StartTicks:  start,
		Image: Image{
			code:  field(statStartCode),
			stack: field(statStartStack),
			brk:   field(statStartBrk),
		},
	}, nil
}

// Age is the time since the process began: CLOCK_BOOTTIME minus Start, up to one tick (10 ms) too
// long.
func (s Stat) Age() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // cannot happen: the clock always exists
	}
	return max(0, time.Duration(now.Nano())-s.Start)
}

// BootID returns the random number that the kernel draws at each boot
// (https://docs.kernel.org/admin-guide/sysctl/kernel.html#random).
func BootID() (string, error) {
	raw, err := ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// IsExiting reports whether the process has exited or has no program any more (Image.IsZero).
func (p *Process) IsExiting() bool {
	stat, err := p.Stat()
	return err != nil || stat.Image.IsZero() || !p.Alive()
}

// StartBrk is the program break at which the process began (start_brk); 0 if it is unknown.
func (c *counters) StartBrk() uint64 {
	stat, err := c.Stat()
	if err != nil {
		return 0
	}
	return uint64(max(stat.Image.brk, 0))
}

// Sample reads the counters of status and stat. PSS, Private, steps and tensors are Unknown and
// Elapsed is 0: these two files lack them. The error wraps os.ErrNotExist if the process is gone.
func (c *counters) Sample() (growth.Sample, error) {
	stat, err := c.Stat()
	if err != nil {
		return growth.UnknownSample(), err
	}
	return c.SampleAfter(stat)
}

// SampleAfter is Sample with a stat that has just been read.
func (c *counters) SampleAfter(stat Stat) (growth.Sample, error) {
	sample := growth.UnknownSample()
	status, err := c.Status()
	if err != nil {
		return sample, err
	}

	sample.RSS, sample.Virtual, sample.Swap = status.RSS, status.Virtual, status.Swap
	sample.Anonymous, sample.File, sample.Shared = status.Anonymous, status.File, status.Shared
	sample.Threads = status.Threads
	sample.MinorFaults, sample.MajorFaults = stat.MinorFaults, stat.MajorFaults
	return sample, nil
}

// Rollup reads PSS and private memory (USS) in bytes from /proc/PID/smaps_rollup. Reading it costs
// about 5 ms for each resident GiB and holds the process's mmap lock for reading.
func (c *counters) Rollup() (pss, private int64, err error) {
	raw, err := c.readLockingAs(hostile.LongOfProcess, "smaps_rollup", maxRollupBytes)
	if err != nil {
		return Unknown, Unknown, err
	}

	fields := parseFields(raw)
	clean, dirty := kibibytes(fields, "Private_Clean"), kibibytes(fields, "Private_Dirty")
	if clean == Unknown || dirty == Unknown {
		return Unknown, Unknown, fmt.Errorf("read smaps_rollup: no Private lines")
	}
	return kibibytes(fields, "Pss"), clean + dirty, nil
}

const maxRollupBytes = 64 << 10 // of smaps_rollup

// parseFields reads lines of the form "Name:  value".
func parseFields(raw []byte) map[string]string {
	fields := make(map[string]string, 64)
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// kibibytes returns a field of the form "12 kB" in bytes; Unknown if it is absent or malformed.
func kibibytes(fields map[string]string, name string) int64 { return kibibytesOf(fields[name]) }

func kibibytesOf(field string) int64 {
	n := number(strings.TrimSuffix(field, " kB"))
	if n == Unknown || n > 1<<53 {
		return Unknown
	}
	return n << 10
}

// number parses a count; Unknown if it is negative or malformed.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return Unknown
	}
	return n
}
