// Package export writes what a trace found: pprof profiles, the timeline, the summary, and the folder that holds them.
// It knows nothing of the kernel. Writers take an io.Writer and leave naming the file to whoever opened it.
package export

import (
	"io"
	"slices"
	"time"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/growth"
)

// Info is what a profile says besides its samples.
type Info struct {
	// Time at which the period began that the values cover; the zero time leaves it out.
	Time time.Time
	// Duration of that period; 0 leaves it out.
	Duration time.Duration
	// Interval is the mean number of bytes between samples; 0 and 1 mean every allocation.
	Interval uint64
	// Executable is the path of the main binary as the process sees it. It becomes the first mapping, which pprof takes
	// for the name of the profile. Empty: the first mapping is that of the largest holding.
	Executable string
	// Processes maps a PID to its command name, for the label "process". Samples of other PIDs carry no such label.
	Processes map[int]string
	// Owners tell whose memory a sample is, for the label "owner".
	Owners *growth.Owners
	// Comments are lines of text: losses, kernel, sources, command.
	Comments []string
}

// Profile is the pprof form of holdings: one sample for each, largest InuseBytes first. Values are rounded to the nearest
// integer and are negative where something shrank.
//
// Sample types: alloc_objects and alloc_space, inuse_objects and inuse_space, resident_space (the default), whose sum is the
// RSS of the processes. Labels: "kind", "owner", "process", "pid" (text), "trend", and "bytes", the mean size of an object.
//
// Only where some holdings are on GPUs: device_objects and device_space, whose sum is that of the ledgers of device memory, and
// device_reserved_space, which is what the driver handed out by who asked for it: much of that is in device_space, as blocks. Label:
// "gpu", where it is known. What is on GPUs counts in these types alone, and what is in the host's memory in the others.
//
// The frames of the allocator itself are kept and named in DropFrames: pprof leaves them out when it reads the file, so
// that the caller of malloc shows as flat.
//
// The error is that of profile.CheckValid.
func Profile(holdings []growth.Holding, info Info) (*profile.Profile, error) {
	sorted := slices.Clone(holdings)
	growth.SortByInuse(sorted)
	b := newBuilder(info)
	b.addExecutable(info.Executable, sorted)
	if slices.ContainsFunc(sorted, func(h growth.Holding) bool { return h.Kind.IsDevice() }) {
		b.addDeviceTypes()
	}
	for _, h := range sorted {
		b.addSample(h)
	}
	if err := b.profile.CheckValid(); err != nil {
		return nil, err
	}
	return b.profile, nil
}

// WriteProfile writes Profile, compressed with gzip. The error is that of Profile or of the writer, not wrapped.
func WriteProfile(w io.Writer, holdings []growth.Holding, info Info) error {
	p, err := Profile(holdings, info)
	if err != nil {
		return err
	}
	return p.Write(w)
}
