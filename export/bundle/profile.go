package bundle

import (
	"encoding/hex"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/growth"
)

// labelRules are the labels of samples that hold names. All others are sentences.
var labelRules = map[string]textRule{
	"component": (*pseudonyms).component,
	"process":   (*pseudonyms).command,
	"pid":       kept,
}

// profile replaces private names in a profile. Its values, lines and addresses stay.
func (n *pseudonyms) profile(p *profile.Profile) {
	n.locations(p)
	for _, m := range p.Mapping {
		m.File = n.path(m.File)
		m.KernelRelocationSymbol = ""
		if _, err := hex.DecodeString(m.BuildID); err != nil {
			m.BuildID = ""
		}
	}

	for _, s := range p.Sample {
		n.labels(s)
	}

	n.sampleTypes(p)

	for i, line := range p.Comments {
		p.Comments[i] = n.sentence(line, false)
	}

	p.DropFrames, p.KeepFrames, p.DocURL = growth.AllocatorFunctions, "", ""
}

func (n *pseudonyms) sampleTypes(p *profile.Profile) {
	types := p.SampleType
	if p.PeriodType != nil {
		types = append(types[:len(types):len(types)], p.PeriodType)
	}

	for _, t := range types {
		t.Type, t.Unit = n.sentence(t.Type, false), n.sentence(t.Unit, false)
	}

	p.DefaultSampleType = n.sentence(p.DefaultSampleType, false)
}

// locations replaces the functions. One that lies in a public file and in a private one, by its
// name and source, becomes two.
func (n *pseudonyms) locations(p *profile.Profile) {
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

			k := key{f, n.isPublicCode(l, f)}
			if replaced[k] == nil {
				replaced[k] = n.code(f, k.isPublic, l.Mapping == nil)
				replaced[k].ID = uint64(len(p.Function) + 1)
				p.Function = append(p.Function, replaced[k])
			}

			l.Line[i].Function = replaced[k]
		}
	}
}

// isPublicCode is true of the code of a public file: of Python by its source, else by the mapping.
func (n *pseudonyms) isPublicCode(l *profile.Location, f *profile.Function) bool {
	if l.Mapping != nil {
		return n.isPublic(l.Mapping.File)
	}

	return f.Filename != "" && n.isPublic(f.Filename)
}

// code returns a function as it is in the bundle.
func (n *pseudonyms) code(f *profile.Function, isPublic, isUnmapped bool) *profile.Function {
	out := *f
	if isUnmapped && f.Filename == "" { // allocscope's own, such as "[before tracing]"
		out.Name = n.root(f.Name)
	} else {
		out.Name = n.function(f.Name, isPublic)
	}

	if f.SystemName != "" {
		out.SystemName = out.Name
	}

	if !isPublic || isUnmapped || strings.HasPrefix(f.Filename, "/") {
		out.Filename = n.path(f.Filename)
	}

	return &out
}

func (n *pseudonyms) labels(s *profile.Sample) {
	labels := make(map[string][]string, len(s.Label))
	for key, values := range s.Label {
		rule, isListed := labelRules[key]
		for i, value := range values {
			if isListed {
				values[i] = rule(n, value)
			} else {
				values[i] = n.sentence(value, false)
			}
		}

		labels[n.sentence(key, false)] = values
	}

	s.Label = labels

	numbers, units := make(map[string][]int64), make(map[string][]string)
	for key, values := range s.NumLabel {
		name := n.sentence(key, false)
		numbers[name] = values
		for _, unit := range s.NumUnit[key] {
			units[name] = append(units[name], n.sentence(unit, false))
		}
	}

	s.NumLabel, s.NumUnit = numbers, units
}
