// Package export writes what a trace found: pprof profiles, the timeline, the summary, and the folder that holds them.
// It knows nothing of the kernel. Writers take an io.Writer and leave naming the file to whoever opened it.
package profile

import (
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/units"

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
	Components *growth.Owners
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
func Build(holdings []growth.Holding, info Info) (*profile.Profile, error) {
	sorted := slices.Clone(holdings)
	growth.SortByInuse(sorted)
	b := newBuilder(info)
	b.addExecutable(info.Executable, sorted)
	if slices.ContainsFunc(sorted, func(h growth.Holding) bool { return h.Kind.IsDevice() }) {
		b.addGPUTypes()
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
func Write(w io.Writer, holdings []growth.Holding, info Info) error {
	p, err := Build(holdings, info)
	if err != nil {
		return err
	}
	return p.Write(w)
}

// A builder collects a profile; each mapping, function and location is made once and shared.
type builder struct {
	profile    *profile.Profile
	processes  map[int]string
	components *growth.Owners
	mappings   map[growth.Module]*profile.Mapping
	functions  map[functionKey]*profile.Function
	locations  map[locationKey]*profile.Location
	hasGPU     bool // some holdings are on GPUs
}

type functionKey struct {
	name, file string
	startLine  int
}

type locationKey struct {
	mapping  *profile.Mapping
	address  uint64
	function *profile.Function
	line     int
}

func newBuilder(info Info) *builder {
	p := &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "alloc_objects", Unit: "count"},
			{Type: "alloc_space", Unit: "bytes"},
			{Type: "inuse_objects", Unit: "count"},
			{Type: "inuse_space", Unit: "bytes"},
			{Type: "resident_space", Unit: "bytes"},
		},
		DefaultSampleType: "resident_space",
		PeriodType:        &profile.ValueType{Type: "space", Unit: "bytes"},
		Period:            int64(info.Interval),
		DurationNanos:     info.Duration.Nanoseconds(),
		// pprof anchors the expression at both ends, cuts the parameters off a name, and removes the outermost match with all
		// that it called; the frames of a stack with nothing else in it stay (profile/prune.go).
		DropFrames: growth.AllocatorFunctions,
	}
	if !info.Time.IsZero() {
		p.TimeNanos = info.Time.UnixNano()
	}
	for _, line := range info.Comments {
		p.Comments = append(p.Comments, validUTF8(line))
	}
	return &builder{
		profile:    p,
		processes:  info.Processes,
		components: info.Components,
		mappings:   make(map[growth.Module]*profile.Mapping),
		functions:  make(map[functionKey]*profile.Function),
		locations:  make(map[locationKey]*profile.Location),
	}
}

// addExecutable makes the first mapping: where the executable is mapped if a frame lies in it, else no more than its name.
func (b *builder) addExecutable(path string, holdings []growth.Holding) {
	if path == "" {
		return
	}
	for _, h := range holdings {
		for _, f := range h.Stack.Frames {
			if f.Module != nil && f.Module.Path == path {
				b.mapping(f.Module)
				return
			}
		}
	}
	b.mapping(&growth.Module{Path: path})
}

func (b *builder) addSample(h growth.Holding) {
	s := &profile.Sample{
		Value: b.values(h),
		Label: map[string][]string{"kind": {string(h.Kind)}, "owner": {b.components.Of(h.Stack)}},
	}
	if pid := h.Stack.PID; pid != 0 {
		s.Label["pid"] = []string{strconv.Itoa(pid)}
		if command := b.processes[pid]; command != "" {
			s.Label["process"] = []string{validUTF8(command)}
		}
	}
	if h.GPU != "" {
		s.Label["gpu"] = []string{validUTF8(h.GPU)}
	}
	if h.Trend != "" {
		s.Label["trend"] = []string{string(h.Trend)}
	}
	if size := meanSize(h); size > 0 {
		s.NumLabel = map[string][]int64{"bytes": {size}}
		s.NumUnit = map[string][]string{"bytes": {"bytes"}}
	}
	for _, f := range Frames(h.Stack) {
		s.Location = append(s.Location, b.location(f))
	}
	b.profile.Sample = append(b.profile.Sample, s)
}

// addDeviceTypes gives the profile the sample types of memory on GPUs.
func (b *builder) addGPUTypes() {
	b.hasGPU = true
	b.profile.SampleType = append(b.profile.SampleType,
		&profile.ValueType{Type: "device_objects", Unit: "count"},
		&profile.ValueType{Type: "device_space", Unit: "bytes"},
		&profile.ValueType{Type: "device_reserved_space", Unit: "bytes"},
	)
}

// values of a holding: of memory on a GPU none in the types of the host, and the reverse.
func (b *builder) values(h growth.Holding) []int64 {
	host := []int64{units.Round(h.AllocObjects), units.Round(h.AllocBytes), units.Round(h.InuseObjects), h.InuseBytes, h.ResidentBytes}
	switch {
	case !b.hasGPU:
		return host
	case !h.Kind.IsDevice():
		return append(host, 0, 0, 0)
	}
	objects, reserved := int64(0), int64(0)
	if h.Kind == growth.KindCudaBlock || h.DeviceBytes != 0 {
		objects = units.Round(h.InuseObjects)
	}
	if h.Kind == growth.KindCudaSegment {
		reserved = h.InuseBytes
	}
	return []int64{0, 0, 0, 0, 0, objects, h.DeviceBytes, reserved}
}

func (b *builder) location(f growth.Frame) *profile.Location {
	key := locationKey{b.mapping(f.Module), f.Address, b.function(f), f.Line}
	if l, ok := b.locations[key]; ok {
		return l
	}
	l := &profile.Location{
		ID:      uint64(len(b.profile.Location) + 1),
		Mapping: key.mapping,
		Address: f.Address,
		Line:    []profile.Line{{Function: key.function, Line: int64(f.Line)}},
	}
	if l.Mapping != nil {
		l.Mapping.HasFilenames = l.Mapping.HasFilenames || f.File != ""
		l.Mapping.HasLineNumbers = l.Mapping.HasLineNumbers || f.Line != 0
	}
	b.locations[key] = l
	b.profile.Location = append(b.profile.Location, l)
	return l
}

// mapping is nil for a nil module. HasFunctions keeps pprof from looking for the file on the machine of the reader.
func (b *builder) mapping(module *growth.Module) *profile.Mapping {
	if module == nil {
		return nil
	}
	if m, ok := b.mappings[*module]; ok {
		return m
	}
	m := &profile.Mapping{
		ID:           uint64(len(b.profile.Mapping) + 1),
		Start:        module.Start,
		Limit:        module.Limit,
		Offset:       module.Offset,
		File:         validUTF8(module.Path),
		BuildID:      module.BuildID,
		HasFunctions: true,
	}
	b.mappings[*module] = m
	b.profile.Mapping = append(b.profile.Mapping, m)
	return m
}

// function leaves SystemName empty: pprof takes a name that equals its SystemName for a mangled one and removes what is in
// angle brackets from it, which would leave nothing of Python's "<module>".
func (b *builder) function(f growth.Frame) *profile.Function {
	key := functionKey{f.Function, f.File, f.StartLine}
	if fn, ok := b.functions[key]; ok {
		return fn
	}
	fn := &profile.Function{
		ID:        uint64(len(b.profile.Function) + 1),
		Name:      validUTF8(f.Function),
		Filename:  validUTF8(f.File),
		StartLine: int64(f.StartLine),
	}
	b.functions[key] = fn
	b.profile.Function = append(b.profile.Function, fn)
	return fn
}

// meanSize is bytes per object of what is alive, else of what was allocated; 0 if neither gives a size.
func meanSize(h growth.Holding) int64 {
	if objects := math.Round(h.InuseObjects); objects != 0 && float64(h.InuseBytes)/objects > 0 {
		return units.Round(float64(h.InuseBytes) / h.InuseObjects)
	}
	if objects := math.Round(h.AllocObjects); objects != 0 && h.AllocBytes/objects > 0 {
		return units.Round(h.AllocBytes / h.AllocObjects)
	}
	return 0
}

// text makes a string of the process (a name may be cut in the middle of a character) fit for protocol buffers.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
