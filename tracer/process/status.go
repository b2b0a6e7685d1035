package process

import (
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// Unknown marks a number that the kernel does not give.
const Unknown = growth.Unknown

// Status is what /proc/PID/status tells. Sizes are in bytes.
type Status struct {
	Name               string // printable
	State              byte   // as in ps: R, S, D, T (stopped), Z, ...
	TGID, Parent       int
	Virtual, RSS, Swap int64 // Unknown for a process without memory of its own
	// Anonymous, File and Shared are the parts of RSS: private anonymous memory, mapped files, shared memory.
	Anonymous, File, Shared int64
	Threads                 int64
}

// Status reads the state of the process. A process that is gone gives an error that wraps os.ErrNotExist.
func (p *Process) Status() (Status, error) {
	raw, err := p.read("status")
	if err != nil {
		return Status{}, err
	}
	fields := parseFields(raw)
	status := Status{
		Name:      Printable(fields["Name"]),
		TGID:      int(number(fields["Tgid"])),
		Parent:    int(number(fields["PPid"])),
		Virtual:   kibibytes(fields, "VmSize"),
		RSS:       kibibytes(fields, "VmRSS"),
		Swap:      kibibytes(fields, "VmSwap"),
		Anonymous: kibibytes(fields, "RssAnon"),
		File:      kibibytes(fields, "RssFile"),
		Shared:    kibibytes(fields, "RssShmem"),
		Threads:   number(fields["Threads"]),
	}
	if state := fields["State"]; state != "" {
		status.State = state[0]
	}
	return status, nil
}

// Sample reads the counters of the process: one reading of status and one of stat. PSS, Private, steps and tensors are Unknown
// and Elapsed is 0: they are not found there. A process that is gone gives an error that wraps os.ErrNotExist.
func (p *Process) Sample() (growth.Sample, error) {
	sample := growth.UnknownSample()
	status, err := p.Status()
	if err != nil {
		return sample, err
	}
	stat, err := p.Stat()
	if err != nil {
		return sample, err
	}
	sample.RSS, sample.Virtual, sample.Swap, sample.Threads = status.RSS, status.Virtual, status.Swap, status.Threads
	sample.Anonymous, sample.File, sample.Shared = status.Anonymous, status.File, status.Shared
	sample.MinorFaults, sample.MajorFaults = stat.MinorFaults, stat.MajorFaults
	return sample, nil
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
