package process

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// Unknown marks a number that the kernel does not give.
const Unknown = growth.Unknown

// Status is /proc/PID/status and the fault counters of /proc/PID/stat. Sizes are in bytes.
type Status struct {
	Name               string // printable
	State              byte   // as in ps: R, S, D, T (stopped), Z, ...
	TGID               int
	Virtual, RSS, Swap int64 // Unknown for a process without memory of its own
	Threads            int64
}

// Status reads the state of the process. A process that is gone gives an error that wraps os.ErrNotExist.
func (p *Process) Status() (Status, error) {
	raw, err := p.read("status")
	if err != nil {
		return Status{}, err
	}
	fields := parseFields(raw)
	status := Status{
		Name:    Printable(fields["Name"]),
		Virtual: kibibytes(fields, "VmSize"),
		RSS:     kibibytes(fields, "VmRSS"),
		Swap:    kibibytes(fields, "VmSwap"),
		Threads: number(fields["Threads"]),
		TGID:    int(number(fields["Tgid"])),
	}
	if state := fields["State"]; state != "" {
		status.State = state[0]
	}
	return status, nil
}

// Faults counts the page faults since the process began: minor ones without I/O, major ones with.
func (p *Process) Faults() (minor, major int64, err error) {
	fields, err := p.stat()
	if err != nil {
		return Unknown, Unknown, err
	}
	return number(fields[7]), number(fields[9]), nil
}

// StartBreak is where the program break was when the process began (start_brk of proc_pid_stat(5)); 0 if that is unknown.
func (p *Process) StartBreak() uint64 {
	fields, err := p.stat()
	if err != nil {
		return 0
	}
	return uint64(max(number(fields[44]), 0))
}

// stat gives the fields of /proc/PID/stat behind the name, which stands in parentheses and in which anything may stand.
func (p *Process) stat() ([]string, error) {
	raw, err := p.read("stat")
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 45 {
		return nil, fmt.Errorf("read stat: %d fields", len(fields))
	}
	return fields, nil
}

// Rollup is the sum of /proc/PID/smaps_rollup: PSS and what no other process shares, in bytes. Reading it costs about 5 ms
// a resident GiB and holds the process's mmap lock for reading.
func (p *Process) Rollup() (pss, private int64, err error) {
	raw, err := p.read("smaps_rollup")
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

// parseFields reads lines "Name:  value".
func parseFields(raw []byte) map[string]string {
	fields := make(map[string]string, 64)
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

func kibibytes(fields map[string]string, name string) int64 {
	n := number(strings.TrimSuffix(fields[name], " kB"))
	if n == Unknown || n > 1<<53 {
		return Unknown
	}
	return n << 10
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return Unknown
	}
	return n
}
