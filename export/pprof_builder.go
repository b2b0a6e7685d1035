package export

import (
	"math"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/growth"
)

// A builder collects a profile; each mapping, function and location is made once and shared.
type builder struct {
	profile   *profile.Profile
	processes map[int]string
	owners    *growth.Owners
	mappings  map[growth.Module]*profile.Mapping
	functions map[functionKey]*profile.Function
	locations map[locationKey]*profile.Location
	onDevices bool // some holdings are on GPUs
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
		p.Comments = append(p.Comments, text(line))
	}
	return &builder{
		profile:   p,
		processes: info.Processes,
		owners:    info.Owners,
		mappings:  make(map[growth.Module]*profile.Mapping),
		functions: make(map[functionKey]*profile.Function),
		locations: make(map[locationKey]*profile.Location),
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
		Label: map[string][]string{"kind": {string(h.Kind)}, "owner": {b.owners.Of(h.Stack)}},
	}
	if pid := h.Stack.PID; pid != 0 {
		s.Label["pid"] = []string{strconv.Itoa(pid)}
		if command := b.processes[pid]; command != "" {
			s.Label["process"] = []string{text(command)}
		}
	}
	if h.GPU != "" {
		s.Label["gpu"] = []string{text(h.GPU)}
	}
	if h.Trend != "" {
		s.Label["trend"] = []string{string(h.Trend)}
	}
	if size := meanSize(h); size > 0 {
		s.NumLabel = map[string][]int64{"bytes": {size}}
		s.NumUnit = map[string][]string{"bytes": {"bytes"}}
	}
	for _, f := range framesOf(h.Stack) {
		s.Location = append(s.Location, b.location(f))
	}
	b.profile.Sample = append(b.profile.Sample, s)
}

// addDeviceTypes gives the profile the sample types of memory on GPUs.
func (b *builder) addDeviceTypes() {
	b.onDevices = true
	b.profile.SampleType = append(b.profile.SampleType,
		&profile.ValueType{Type: "device_objects", Unit: "count"},
		&profile.ValueType{Type: "device_space", Unit: "bytes"},
		&profile.ValueType{Type: "device_reserved_space", Unit: "bytes"},
	)
}

// values of a holding: of memory on a GPU none in the types of the host, and the reverse.
func (b *builder) values(h growth.Holding) []int64 {
	host := []int64{nearest(h.AllocObjects), nearest(h.AllocBytes), nearest(h.InuseObjects), h.InuseBytes, h.ResidentBytes}
	switch {
	case !b.onDevices:
		return host
	case !h.Kind.IsDevice():
		return append(host, 0, 0, 0)
	}
	objects, reserved := int64(0), int64(0)
	if h.Kind == growth.KindCudaBlock || h.DeviceBytes != 0 {
		objects = nearest(h.InuseObjects)
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
		File:         text(module.Path),
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
		Name:      text(f.Function),
		Filename:  text(f.File),
		StartLine: int64(f.StartLine),
	}
	b.functions[key] = fn
	b.profile.Function = append(b.profile.Function, fn)
	return fn
}

// meanSize is bytes per object of what is alive, else of what was allocated; 0 if neither gives a size.
func meanSize(h growth.Holding) int64 {
	if objects := math.Round(h.InuseObjects); objects != 0 && float64(h.InuseBytes)/objects > 0 {
		return nearest(float64(h.InuseBytes) / h.InuseObjects)
	}
	if objects := math.Round(h.AllocObjects); objects != 0 && h.AllocBytes/objects > 0 {
		return nearest(h.AllocBytes / h.AllocObjects)
	}
	return 0
}

func nearest(value float64) int64 { return int64(math.Round(value)) }

// text makes a string of the process (a name may be cut in the middle of a character) fit for protocol buffers.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
