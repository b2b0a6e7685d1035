package bundle

import (
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/growth"
)

// labelRules are the labels of samples. All others are left out.
var labelRules = map[string]textRule{
	"kind":      code("BreakdownRow.kind"),
	"trend":     code("Accumulation.trend"),
	"component": (*pseudonyms).component,
	"process":   (*pseudonyms).command,
	"pid":       number,
	"gpu":       number,
}

// valueTypes are the types and units of the values of a sample.
var valueTypes = set(`alloc_objects alloc_space inuse_objects inuse_space resident_space
device_objects device_space device_reserved_space space count bytes`)

// number is the rule of a text that is a whole number.
func number(n *pseudonyms, text string) string {
	if isNumber(text) {
		return text
	}
	return n.replace("code", text)
}

// profile replaces private names in a profile. Its values, lines and addresses stay.
func (r *redactor) profile(p *profile.Profile) {
	r.locations(p)
	for _, m := range p.Mapping {
		m.File = r.names.path(m.File)
		m.KernelRelocationSymbol = ""
		if _, err := hex.DecodeString(m.BuildID); err != nil {
			m.BuildID = ""
		}
	}

	for _, s := range p.Sample {
		r.labels(s)
	}

	r.sampleTypes(p)

	p.Comments = slices.DeleteFunc(p.Comments, func(line string) bool {
		version, isVersion := strings.CutPrefix(line, "allocscope ")
		isKept := isVersion && r.names.public[version] || intervalComment.MatchString(line)
		return !isKept
	})

	p.DropFrames, p.KeepFrames, p.DocURL = growth.AllocatorFunctions, "", ""
}

func (r *redactor) sampleTypes(p *profile.Profile) {
	types := p.SampleType
	if p.PeriodType != nil {
		types = append(types[:len(types):len(types)], p.PeriodType)
	}

	for _, t := range types {
		t.Type, t.Unit = codeOf(valueTypes)(r.names, t.Type), codeOf(valueTypes)(r.names, t.Unit)
	}

	p.DefaultSampleType = codeOf(valueTypes)(r.names, p.DefaultSampleType)
}

// intervalComment is a comment of numbers. summary.json has the facts of all other comments, but for
// the version.
var intervalComment = regexp.MustCompile(`^sampling interval [0-9]+ bytes$`)

// locations replaces the functions. One that lies in a public file and in a private one, by its
// name and source, becomes two.
func (r *redactor) locations(p *profile.Profile) {
	type key struct {
		function *profile.Function
		isPublic bool
	}

	replaced := make(map[key]*profile.Function)
	p.Function = nil
	for _, l := range p.Location {
		for i := range l.Line {
			f := l.Line[i].Function
			if f == nil {
				continue
			}

			k := key{f, r.isPublicCode(l, f)}
			if replaced[k] == nil {
				replaced[k] = r.code(f, k.isPublic, l.Mapping == nil)
				replaced[k].ID = uint64(len(p.Function) + 1)
				p.Function = append(p.Function, replaced[k])
			}

			l.Line[i].Function = replaced[k]
		}
	}
}

// isPublicCode is true of the code of a public file: of Python by its source, else by the mapping.
func (r *redactor) isPublicCode(l *profile.Location, f *profile.Function) bool {
	if l.Mapping != nil {
		return r.names.isPublic(l.Mapping.File)
	}

	return f.Filename != "" && r.names.isPublic(f.Filename)
}

// code returns a function as it is in the bundle.
func (r *redactor) code(f *profile.Function, isPublic, isUnmapped bool) *profile.Function {
	out := *f
	if isUnmapped && f.Filename == "" { // allocscope's own, such as "[before tracing]"
		out.Name = r.names.root(f.Name)
	} else {
		out.Name = r.names.function(f.Name, isPublic)
	}

	if f.SystemName != "" {
		out.SystemName = out.Name
	}

	if !isPublic || isUnmapped || strings.HasPrefix(f.Filename, "/") {
		out.Filename = r.names.path(f.Filename)
	}

	return &out
}

func (r *redactor) labels(s *profile.Sample) {
	labels := make(map[string][]string, len(s.Label))
	for key, rule := range labelRules {
		for _, value := range s.Label[key] {
			labels[key] = append(labels[key], rule(r.names, value))
		}
	}
	s.Label = labels

	const size = "bytes" // of an object
	numbers, units := make(map[string][]int64), make(map[string][]string)
	if values := s.NumLabel[size]; len(values) > 0 {
		numbers[size] = values
		for _, unit := range s.NumUnit[size] {
			units[size] = append(units[size], codeOf(valueTypes)(r.names, unit))
		}
	}
	s.NumLabel, s.NumUnit = numbers, units
}
