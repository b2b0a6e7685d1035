// Package profile writes and reads growth profiles in the format of pprof. See
// https://github.com/google/pprof/blob/main/proto/profile.proto.
package profile

import (
	"compress/gzip"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/component"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/growth"
)

// An Info is everything in a profile but its samples.
type Info struct {
	// Time is when the period began that the values cover; zero: it is left out.
	Time time.Time
	// Duration is the length of that period; 0: it is left out.
	Duration time.Duration
	// Interval is the mean number of bytes between samples; 0 and 1: every allocation.
	Interval uint64
	// Executable is the path of the main binary, as the process sees it. It becomes the first
	// mapping, by which pprof names the profile. Empty: the mapping of the largest holding is the
	// first one.
	Executable string
	// Processes maps a PID to a command, for the label "process". A sample of another PID has no
	// such label.
	Processes map[int]string
	// Components classify stacks, for the label "component".
	Components *component.Rules
	// Comments are lines of text: losses, kernel, sources, command line.
	Comments []string
}

// Build makes a profile with one sample for each holding, the largest InuseBytes first. Values are
// rounded to the nearest integer; they are negative where a holding shrank.
//
// The sample types of host memory are alloc_objects and alloc_space, inuse_objects and inuse_space,
// and resident_space, which is the default and sums to the RSS of the processes. The labels are
// "kind", "component", "process", "pid" (as text), "trend", and "bytes", the mean size of an
// object.
//
// Profiles with holdings on GPUs have three sample types more: device_objects and device_space,
// which sums to the GPU memory breakdowns, and device_reserved_space, memory that the driver handed
// out, by the stack that asked for it. PyTorch's blocks lie in its reserved segments, so the last
// two overlap. The label "gpu" is there where the GPU is known. Each holding counts either in the
// types of host memory or in the types of GPU memory.
//
// The allocator's own frames stay in the file. They are named in DropFrames, so that pprof leaves
// them out when it reads the file, and the caller of malloc shows as flat.
//
// The error comes from profile.CheckValid.
func Build(holdings []growth.Holding, info Info) (*profile.Profile, error) {
	sorted := slices.Clone(holdings)
	growth.SortByInuse(sorted)
	b := newBuilder(info)
	b.addExecutable(info.Executable, sorted)

	if slices.ContainsFunc(sorted, func(h growth.Holding) bool { return h.Kind.IsGPU() }) {
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

// Write writes Build's profile, compressed with gzip: fast, because a trace writes one a snapshot.
// The error comes from Build or, unwrapped, from w.
func Write(w io.Writer, holdings []growth.Holding, info Info) error {
	p, err := Build(holdings, info)
	if err != nil {
		return err
	}

	compressed := compressors.Get().(*gzip.Writer)
	defer compressors.Put(compressed)
	compressed.Reset(w)
	if err := p.WriteUncompressed(compressed); err != nil {
		return err
	}
	return compressed.Close()
}

// compressors are writers of gzip, each of which has a megabyte of tables.
var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is known
	return w
}}

// A builder collects a profile. It makes each mapping, function and location once.
type builder struct {
	profile    *profile.Profile
	processes  map[int]string
	components *component.Rules
	mappings   map[growth.Module]*profile.Mapping
	functions  map[functionKey]*profile.Function
	locations  map[growth.Frame]*profile.Location
	hasGPU     bool // some holdings are on GPUs
}

type functionKey struct {
	name, file string
	startLine  int
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
		// pprof anchors the expression at both ends and matches names without parameters. It removes
		// the outermost match and all that it called, unless no frame would be left:
		// https://github.com/google/pprof/blob/main/profile/prune.go
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
		locations:  make(map[growth.Frame]*profile.Location),
	}
}

// addExecutable makes the first mapping. It has the addresses of the executable if a frame lies in
// it, else only its name.
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
		Label: map[string][]string{
			"kind": {string(h.Kind)}, "component": {b.components.Of(h.Stack)},
		},
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

// addGPUTypes adds the sample types of GPU memory.
func (b *builder) addGPUTypes() {
	b.hasGPU = true
	b.profile.SampleType = append(b.profile.SampleType,
		&profile.ValueType{Type: "device_objects", Unit: "count"},
		&profile.ValueType{Type: "device_space", Unit: "bytes"},
		&profile.ValueType{Type: "device_reserved_space", Unit: "bytes"},
	)
}

// values has one value for each sample type. Host memory has none in the types of GPU memory, and
// the reverse.
func (b *builder) values(h growth.Holding) []int64 {
	host := []int64{
		units.Round(h.AllocObjects), units.Round(h.AllocBytes), units.Round(h.InuseObjects),
		h.InuseBytes, h.ResidentBytes,
	}
	switch {
	case !b.hasGPU:
		return host
	case !h.Kind.IsGPU():
		return append(host, 0, 0, 0)
	}

	objects, reserved := int64(0), int64(0)
	if h.Kind == growth.KindCudaBlock || h.GPUBytes != 0 {
		objects = units.Round(h.InuseObjects)
	}

	if h.Kind == growth.KindCudaSegment {
		reserved = h.InuseBytes
	}

	return []int64{0, 0, 0, 0, 0, objects, h.GPUBytes, reserved}
}

func (b *builder) location(f growth.Frame) *profile.Location {
	if l, ok := b.locations[f]; ok {
		return l
	}

	l := &profile.Location{
		ID:      uint64(len(b.profile.Location) + 1),
		Mapping: b.mapping(f.Module),
		Address: f.Address,
		Line:    []profile.Line{{Function: b.function(f), Line: int64(f.Line)}},
	}

	if l.Mapping != nil {
		l.Mapping.HasFilenames = l.Mapping.HasFilenames || f.File != ""
		l.Mapping.HasLineNumbers = l.Mapping.HasLineNumbers || f.Line != 0
	}

	b.locations[f] = l
	b.profile.Location = append(b.profile.Location, l)
	return l
}

// mapping is nil for a nil module. HasFunctions keeps pprof from searching for the file on the
// reader's machine.
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

// function leaves SystemName empty. If it equals the name, pprof takes the name for a mangled one
// and drops the text in angle brackets, which would leave nothing of Python's "<module>".
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

// meanSize is the size of a live object, else of an allocated one, in bytes; 0 if neither is known.
func meanSize(h growth.Holding) int64 {
	if objects := math.Round(h.InuseObjects); objects != 0 && float64(h.InuseBytes)/objects > 0 {
		return units.Round(float64(h.InuseBytes) / h.InuseObjects)
	}
	if objects := math.Round(h.AllocObjects); objects != 0 && h.AllocBytes/objects > 0 {
		return units.Round(h.AllocBytes / h.AllocObjects)
	}
	return 0
}

// validUTF8 makes a string of the target fit for protocol buffers: the kernel may truncate a name
// in the middle of a character.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
