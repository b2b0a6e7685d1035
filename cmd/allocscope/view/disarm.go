package view

import (
	"regexp"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/tracer/process"
)

// buildID is what a linker may write. pprof makes patterns of file names of it.
var buildID = regexp.MustCompile(`^[0-9a-fA-F]{1,128}$`)

// disarm takes off a profile what leads pprof or a browser elsewhere, and makes its names readable. Those that pprof puts into
// the graph's description as they are (internal/graph/dotgraph.go) lose what could end a string there, and begin a link.
func disarm(p *profile.Profile) {
	p.DocURL = ""
	for _, m := range p.Mapping {
		m.File = plain(m.File)
		if !buildID.MatchString(m.BuildID) {
			m.BuildID = ""
		}
	}
	for _, f := range p.Function {
		f.Name, f.SystemName, f.Filename = readable(f.Name), readable(f.SystemName), readable(f.Filename)
	}
	for i, text := range p.Comments {
		p.Comments[i] = readable(text)
	}
	p.DefaultSampleType = plain(p.DefaultSampleType)
	for _, t := range p.SampleType {
		t.Type, t.Unit = plain(t.Type), plain(t.Unit)
	}
	for _, s := range p.Sample {
		s.Label = plainLabels(s.Label)
	}
}

// longestName is how much of a name is kept, in bytes: graphviz draws nothing where one is too wide.
const longestName = 2000

// readable shortens a text, and replaces what every reader sees otherwise: graphviz stops at a NUL, and marks of direction turn
// around what follows them.
func readable(text string) string {
	if len(text) > longestName {
		text = text[:longestName] + "..."
	}
	return process.Printable(text)
}

var quotes = strings.NewReplacer(`"`, `'`, `\`, `/`)

func plain(text string) string { return quotes.Replace(readable(text)) }

func plainLabels(labels map[string][]string) map[string][]string {
	made := make(map[string][]string, len(labels))
	for key, values := range labels {
		for i, text := range values {
			values[i] = plain(text)
		}
		made[plain(key)] = values
	}
	return made
}
