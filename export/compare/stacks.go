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

// A frameName is what makes a frame the same in two runs: a fix shifts lines, and a start shifts addresses.
type frameName struct{ function, file string }

// names number the frames, owners and kinds of all profiles that are compared, so that a stack is a short text of numbers.
type names map[frameName]uint32

func (n names) number(name frameName) uint32 {
	i, ok := n[name]
	if !ok {
		i = uint32(len(n))
		n[name] = i
	}
	return i
}

// A holder is all stacks of one owner and kind that read alike.
type site struct {
	component, kind string
	// sample that holds most of it, in words for people.
	sample  *pprof.Sample
	largest int64
	// held is what it holds, or has gained; allocated what was allocated since the trace began, in the same measure.
	held      amount
	allocated float64
	// untold: how much was allocated is not in the profile, as of memory on GPUs.
	noAllocated bool
	// size is the mean size of its objects in bytes, and missed what of them sampling may have missed; 0: it is not sampled.
	size, scale float64
}

// most is how much can have been allocated where so much is said to have been, in bytes.
func (h *site) maxAllocated(allocated float64) float64 {
	if h.noAllocated {
		return math.Inf(1)
	}
	return max(allocated, 0)
}

// A reading takes one sample type of a profile.
type typeReader struct {
	profile *pprof.Profile
	names   names
	frames  map[*pprof.Location][]uint32
	// interval is the mean number of bytes between samples; 0: every allocation was taken, or it is not known.
	interval float64
	// index of the sample type; space and objects those of what gives the size of objects, allocated of alloc_space; -1: none.
	index, space, objects, allocated int
	// onDevice: the sample type is of memory on GPUs.
	onGPU bool
}

// sampledKind is the kind of memory of which only some objects were taken.
func (r *typeReader) sampledKind() string {
	if r.onGPU {
		return string(growth.KindCudaBlock)
	}
	return string(growth.KindHeap)
}

func newTypeReader(p *pprof.Profile, sampleType string, n names) *typeReader {
	r := &typeReader{profile: p, names: n, frames: make(map[*pprof.Location][]uint32), interval: intervalOf(p)}
	r.index, r.allocated, r.onGPU = typeIndex(p, sampleType), typeIndex(p, "alloc_space"), isGPUType(sampleType)
	r.space, r.objects = r.index, typeIndex(p, countOf(sampleType))
	if sampleType == residentSpace {
		r.space, r.objects = typeIndex(p, inuseSpace), typeIndex(p, countOf(inuseSpace))
	}
	return r
}

// intervalOf is the mean number of bytes between samples, 0 where all were taken or it is not said.
func intervalOf(p *pprof.Profile) float64 {
	if p.PeriodType == nil || p.PeriodType.Unit != "bytes" || p.Period <= 1 {
		return 0
	}
	return float64(p.Period)
}

// holders sums the samples by owner, kind and stack.
func (r *typeReader) sites() map[string]*site {
	all := make(map[string]*site)
	for _, s := range r.profile.Sample {
		owner, kind := cmp.Or(label(s, "owner"), "unknown"), label(s, "kind")
		key := r.key(s, owner, kind)
		h := all[key]
		if h == nil {
			h = &site{component: owner, kind: kind, sample: s, noAllocated: r.onGPU}
			all[key] = h
		}
		r.add(h, s)
	}
	return all
}

// key is the same for stacks that read alike.
func (r *typeReader) key(s *pprof.Sample, owner, kind string) string {
	key := binary.NativeEndian.AppendUint32(nil, r.names.number(frameName{owner, kind}))
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

// sizeOf is the mean size of the sample's objects in bytes, and what of a byte of them counts in the sample type; 0 where the
// memory is not sampled.
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

// sampled is a sum of bytes over objects of a mean size, of which an object is taken with probability p = 1 - exp(-size/interval) and
// stands for 1/p of them: the variance is bytes size (1-p)/p.
func sampled(bytes, size, scale, interval float64) part {
	if size == 0 || interval == 0 {
		return part{bytes: bytes}
	}
	return part{bytes: bytes, variance: bytes * scale * size / math.Expm1(size/interval), missed: missed(size, scale, interval)}
}

// missed is the interval for objects that may be missed by it; one in e^4 of those of four intervals is.
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

// framesOf are the frames of a location, leaf first: more than one where functions are inlined.
func framesOf(l *pprof.Location) []frame {
	module := ""
	if l.Mapping != nil {
		module = l.Mapping.File
	}
	var frames []frame
	for _, line := range l.Line {
		if line.Function != nil {
			frames = append(frames, frame{Function: line.Function.Name, File: line.Function.Filename, Module: module, Line: line.Line})
		}
	}
	if frames == nil {
		name := "[function unknown]"
		if l.Mapping != nil { // by its place in the file, which a start does not shift
			name = fmt.Sprintf("%s+%#x", path.Base(module), l.Address-l.Mapping.Start+l.Mapping.Offset)
		}
		frames = []frame{{Function: name, Module: module}}
	}
	return frames
}

// text of a frame, as export.StackText writes it.
func (f frame) text() string {
	name, file := units.Printable(f.Function), units.Printable(f.File)
	switch {
	case f.File != "" && f.Line > 0:
		return name + " (" + file + ":" + strconv.FormatInt(f.Line, 10) + ")"
	case f.File != "":
		return fmt.Sprintf("%s (%s)", name, file)
	case f.Module != "":
		return fmt.Sprintf("%s (%s)", name, units.Printable(f.Module))
	}
	return name
}

const residentSpace, inuseSpace, deviceSpace = "resident_space", "inuse_space", "device_space"

// countOf is the sample type that counts the objects of one in bytes.
func countOf(sampleType string) string { return strings.TrimSuffix(sampleType, "_space") + "_objects" }

// typeIndex is the place of a sample type; -1 where the profile has none such.
func typeIndex(p *pprof.Profile, sampleType string) int {
	return slices.IndexFunc(p.SampleType, func(v *pprof.ValueType) bool { return v.Type == sampleType })
}

// chooseType is the sample type that is compared: the one that was asked for, else resident_space, inuse_space or a default one of
// the profiles. All must have it, in bytes, and where there is a choice one that is not 0 throughout.
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
		if name == "" || slices.ContainsFunc(profiles, func(p *pprof.Profile) bool { return !isInBytes(p, name) }) {
			continue
		}
		if slices.ContainsFunc(profiles, func(p *pprof.Profile) bool { return hasValues(p, name) }) {
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
		return fmt.Errorf("not all of what is compared has the sample type %q in bytes (choose another with --sample): they have %s", asked, strings.Join(lists, "; and "))
	}
	return errors.New("there is no sample type in bytes that both have: they have " + strings.Join(lists, "; and "))
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

// isOnDevice tells the sample types of memory on GPUs.
func isGPUType(sampleType string) bool { return strings.HasPrefix(sampleType, "device_") }

// isWhole tells the sample types whose sum is what the kernel, or the driver of a GPU, counts.
func isCountedType(sampleType string) bool {
	return sampleType == residentSpace || sampleType == deviceSpace
}

// level gives each profile of a trace the sample types of memory on GPUs that another one has: where nothing was on a GPU they are left
// out, and mean nothing.
func addMissingGPUTypes(profiles ...*pprof.Profile) {
	for _, of := range profiles {
		for _, v := range of.SampleType {
			for _, p := range profiles {
				if isGPUType(v.Type) && typeIndex(p, v.Type) < 0 && typeIndex(p, residentSpace) >= 0 {
					addType(p, v)
				}
			}
		}
	}
}

// addType adds a sample type of which there is nothing.
func addType(p *pprof.Profile, v *pprof.ValueType) {
	p.SampleType = append(p.SampleType, &pprof.ValueType{Type: v.Type, Unit: v.Unit})
	for _, s := range p.Sample {
		s.Value = append(s.Value, 0)
	}
}

// typeList names the sample types: "cpu/nanoseconds, samples/count".
func typeList(p *pprof.Profile) string {
	var types []string
	for _, v := range p.SampleType {
		types = append(types, units.Printable(v.Type+"/"+v.Unit))
	}
	return strings.Join(types, ", ")
}
