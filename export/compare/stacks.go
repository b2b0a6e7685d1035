package compare

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// A frameName makes a frame comparable between two runs. It has no line, which a fix shifts, and no
// address, which changes with each start.
type frameName struct{ function, file string }

// names number the frames, components and kinds of all profiles, so that the key of a stack is
// short.
type names map[frameName]uint32

func (n names) number(name frameName) uint32 {
	i, ok := n[name]
	if !ok {
		i = uint32(len(n))
		n[name] = i
	}
	return i
}

// A site is all stacks of one component and kind with the same functions and files.
type site struct {
	component, kind string
	// sample that holds most of it, whose stack is shown.
	sample  *pprof.Sample
	largest int64
	// held is the memory that it holds, or has gained. allocated was allocated since the trace
	// began, in the same measure.
	held      amount
	allocated float64
	// noAllocated: the profile does not have the allocated bytes, as of GPU memory.
	noAllocated bool
	// size is the mean size of its objects in bytes, and scale the part of it that counts in the
	// sample type; 0: it is not sampled.
	size, scale float64
}

// maxAllocated is how much can have been allocated, in bytes.
func (h *site) maxAllocated(allocated float64) float64 {
	if h.noAllocated {
		return math.Inf(1)
	}
	return max(allocated, 0)
}

// A typeReader reads one sample type of a profile.
type typeReader struct {
	profile *pprof.Profile
	names   names
	frames  map[*pprof.Location][]uint32
	// interval is the mean number of bytes between samples; 0: every allocation, or unknown.
	interval float64
	// index of the sample type, space and objects of those that give the size of objects, and
	// allocated of alloc_space; -1: there is none.
	index, space, objects, allocated int
	// onGPU: the sample type is of GPU memory.
	onGPU bool
}

// sampledKind is the kind of memory whose objects are sampled.
func (r *typeReader) sampledKind() string {
	if r.onGPU {
		return string(growth.KindCudaBlock)
	}
	return string(growth.KindHeap)
}

func newTypeReader(p *pprof.Profile, sampleType string, n names) *typeReader {
	r := &typeReader{
		profile: p, names: n, frames: make(map[*pprof.Location][]uint32), interval: intervalOf(p),
	}
	r.index, r.allocated, r.onGPU = typeIndex(p, sampleType), typeIndex(p, "alloc_space"),
		isGPUType(sampleType)
	r.space, r.objects = r.index, typeIndex(p, countOf(sampleType))

	if sampleType == residentSpace {
		r.space, r.objects = typeIndex(p, inuseSpace), typeIndex(p, countOf(inuseSpace))
	}

	return r
}

// intervalOf is the mean number of bytes between samples; 0: every allocation, or unknown.
func intervalOf(p *pprof.Profile) float64 {
	if p.PeriodType == nil || p.PeriodType.Unit != "bytes" || p.Period <= 1 {
		return 0
	}
	return float64(p.Period)
}

// sites sums the samples by component, kind and stack.
func (r *typeReader) sites() map[string]*site {
	all := make(map[string]*site)
	for _, s := range r.profile.Sample {
		component, kind := cmp.Or(label(s, "component"), "unknown"), label(s, "kind")
		key := r.key(s, component, kind)
		h := all[key]
		if h == nil {
			h = &site{component: component, kind: kind, sample: s, noAllocated: r.onGPU}
			all[key] = h
		}

		r.add(h, s)
	}

	return all
}

// key is the same for stacks of one site.
func (r *typeReader) key(s *pprof.Sample, component, kind string) string {
	key := binary.NativeEndian.AppendUint32(nil, r.names.number(frameName{component, kind}))
	for _, l := range s.Location {
		numbers, ok := r.frames[l]
		if !ok {
			for _, f := range framesOf(l) {
				numbers = append(numbers, r.names.number(frameName{f.Function, path.Base(f.File)}))
			}
			r.frames[l] = numbers
		}

		for _, n := range numbers {
			key = binary.NativeEndian.AppendUint32(key, n)
		}
	}

	return string(key)
}

func (r *typeReader) add(h *site, s *pprof.Sample) {
	value := float64(s.Value[r.index])
	size, scale := r.sizeOf(h, s)
	if r.allocated >= 0 {
		h.allocated += float64(s.Value[r.allocated]) * cmp.Or(scale, 1)
	}

	if magnitude := max(s.Value[r.index], -s.Value[r.index]); magnitude > h.largest {
		h.largest, h.sample = magnitude, s
		h.size, h.scale = cmp.Or(size, h.size), cmp.Or(scale, h.scale)
	} else if h.size == 0 {
		h.size, h.scale = size, scale
	}

	p := sampled(math.Abs(value), size, scale, r.interval)
	switch {
	case size == 0 || r.interval == 0:
		h.held.add(amount{exact: value})
	case value < 0:
		h.held.add(amount{freed: p})
	default:
		h.held.add(amount{born: p})
	}
}

// sizeOf is the mean size of the sample's objects in bytes, and the part of a byte that counts in
// the sample type; 0 if the memory is not sampled.
func (r *typeReader) sizeOf(h *site, s *pprof.Sample) (size, scale float64) {
	if h.kind != "" && h.kind != r.sampledKind() {
		return 0, 0
	}

	scale = 1
	if r.space >= 0 && r.space != r.index && s.Value[r.space] != 0 {
		scale = float64(s.Value[r.index]) / float64(s.Value[r.space])
	}

	scale = min(max(scale, 0), 4)
	if given := s.NumLabel["bytes"]; len(given) == 1 && given[0] > 0 {
		return float64(given[0]), scale
	}

	if r.objects >= 0 && r.space >= 0 && s.Value[r.objects] != 0 {
		return max(0, float64(s.Value[r.space])/float64(s.Value[r.objects])), scale
	}

	return 0, 0
}

// sampled is a sum of bytes over objects of a mean size. An object is sampled with probability p =
// 1 - exp(-size/interval) and represents 1/p objects, so the variance is bytes × size × (1-p)/p.
func sampled(bytes, size, scale, interval float64) part {
	if size == 0 || interval == 0 {
		return part{bytes: bytes}
	}
	return part{
		bytes: bytes, variance: bytes * scale * size / math.Expm1(size/interval),
		missed: missed(size, scale, interval),
	}
}

// missed is the interval of objects that sampling may miss. It misses one in e^4 objects of four
// intervals.
func missed(size, scale, interval float64) float64 {
	if size == 0 || size >= 4*interval {
		return 0
	}
	return interval * scale
}

func label(s *pprof.Sample, name string) string {
	if values := s.Label[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// A frame of a profile.
type frame struct {
	Function, File, Module string
	Line                   int64
}

// framesOf returns the frames of a location, leaf first: several where functions are inlined.
func framesOf(l *pprof.Location) []frame {
	module := ""
	if l.Mapping != nil {
		module = l.Mapping.File
	}

	var frames []frame
	for _, line := range l.Line {
		if line.Function != nil {
			frames = append(frames, frame{
				Function: line.Function.Name, File: line.Function.Filename, Module: module,
				Line: line.Line,
			})
		}
	}

	if frames == nil {
		name := "[function unknown]"
		if l.Mapping != nil { // the offset in the file, which no start shifts
			name = fmt.Sprintf("%s+%#x", path.Base(module),
				l.Address-l.Mapping.Start+l.Mapping.Offset)
		}
		frames = []frame{{Function: name, Module: module}}
	}

	return frames
}

// text writes a frame as profile.FrameText does.
func (f frame) text() string {
	name, file := units.Name(f.Function), units.Name(f.File)
	switch {
	case f.File != "" && f.Line > 0:
		return name + " (" + file + ":" + strconv.FormatInt(f.Line, 10) + ")"
	case f.File != "":
		return fmt.Sprintf("%s (%s)", name, file)
	case f.Module != "":
		return fmt.Sprintf("%s (%s)", name, units.Name(f.Module))
	}

	return name
}

const residentSpace, inuseSpace, deviceSpace = "resident_space", "inuse_space", "device_space"

// countOf is the sample type of objects that belongs to one of bytes.
func countOf(sampleType string) string {
	return strings.TrimSuffix(sampleType, "_space") +
		"_objects"
}

// typeIndex is the index of a sample type; -1 if the profile has none.
func typeIndex(p *pprof.Profile, sampleType string) int {
	return slices.IndexFunc(p.SampleType,
		func(v *pprof.ValueType) bool { return v.Type == sampleType })
}

// chooseType returns the sample type to compare: the one that the user asked for, else
// resident_space, inuse_space or a default of the profiles. All profiles must have it, in bytes.
// One with values is preferred.
func chooseType(asked string, profiles ...*pprof.Profile) (string, error) {
	candidates := []string{residentSpace, inuseSpace}
	for _, p := range profiles {
		candidates = append(candidates, defaultType(p))
	}

	if asked != "" {
		candidates = []string{asked}
	}

	first := ""
	for _, name := range candidates {
		if name == "" ||
			slices.ContainsFunc(profiles,
				func(p *pprof.Profile) bool { return !isInBytes(p, name) }) {
			continue
		}

		if slices.ContainsFunc(profiles,
			func(p *pprof.Profile) bool { return hasValues(p, name) }) {
			return name, nil
		}

		first = cmp.Or(first, name)
	}

	if first == "" {
		return "", noCommonType(asked, profiles)
	}

	return first, nil
}

func noCommonType(asked string, profiles []*pprof.Profile) error {
	lists := make([]string, len(profiles))
	for i, p := range profiles {
		lists[i] = typeList(p)
	}

	lists = slices.Compact(lists)
	if asked != "" {
		return fmt.Errorf("not all of what is compared has the sample type %q in bytes (choose "+
			"another with --sample): they have %s",
			asked, strings.Join(lists, "; and "))
	}

	return errors.New("there is no sample type in bytes that both have: they have " +
		strings.Join(lists, "; and "))
}

func defaultType(p *pprof.Profile) string {
	if p.DefaultSampleType != "" || len(p.SampleType) == 0 {
		return p.DefaultSampleType
	}
	return p.SampleType[len(p.SampleType)-1].Type
}

func isInBytes(p *pprof.Profile, name string) bool {
	i := typeIndex(p, name)
	return i >= 0 && p.SampleType[i].Unit == "bytes"
}

func hasValues(p *pprof.Profile, name string) bool {
	i := typeIndex(p, name)
	return slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[i] != 0 })
}

// isGPUType reports whether a sample type is of GPU memory.
func isGPUType(sampleType string) bool { return strings.HasPrefix(sampleType, "device_") }

// isCountedType reports whether a sample type sums to a count of the kernel, or of a GPU's driver.
func isCountedType(sampleType string) bool {
	return sampleType == residentSpace || sampleType == deviceSpace
}

// addMissingGPUTypes adds to each profile of a trace the sample types of GPU memory that another
// one has. Profiles without GPU memory leave them out.
func addMissingGPUTypes(profiles ...*pprof.Profile) {
	for _, of := range profiles {
		for _, v := range of.SampleType {
			for _, p := range profiles {
				if isGPUType(v.Type) && typeIndex(p, v.Type) < 0 &&
					typeIndex(p, residentSpace) >= 0 {
					addType(p, v)
				}
			}
		}
	}
}

// addType adds a sample type without values.
func addType(p *pprof.Profile, v *pprof.ValueType) {
	p.SampleType = append(p.SampleType, &pprof.ValueType{Type: v.Type, Unit: v.Unit})
	for _, s := range p.Sample {
		s.Value = append(s.Value, 0)
	}
}

// typeList lists the sample types: "cpu/nanoseconds, samples/count".
func typeList(p *pprof.Profile) string {
	var types []string
	for _, v := range p.SampleType {
		types = append(types, units.Name(v.Type+"/"+v.Unit))
	}
	return strings.Join(types, ", ")
}
