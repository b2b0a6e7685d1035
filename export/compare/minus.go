package compare

import (
	"fmt"
	"slices"

	pprof "github.com/google/pprof/profile"
)

// Minus returns one profile less another one times a factor, as a profile in which a stack of which
// the other has more is negative. Samples of one stack, component and kind are one: their other
// labels go. Profiles whose sample types differ are an error. Both stay as they are.
func Minus(p, less *pprof.Profile, factor float64) (*pprof.Profile, error) {
	p, less = withoutProcess(p), withoutProcess(less)
	addMissingGPUTypes(p, less)
	less.Scale(-factor)

	out, err := pprof.Merge([]*pprof.Profile{p, less})
	if err != nil {
		return nil, fmt.Errorf("subtract a profile: %w", err)
	}
	out.TimeNanos, out.DurationNanos, out.Period = p.TimeNanos, p.DurationNanos, p.Period
	out.DefaultSampleType, out.Comments = p.DefaultSampleType, nil
	return out, nil
}

// OfProcess keeps the samples of one process alone. A profile that names no process is of one, and
// stays whole.
func OfProcess(p *pprof.Profile, pid string) *pprof.Profile {
	if len(pidsOf(p)) == 0 {
		return p
	}
	p.Sample = slices.DeleteFunc(p.Sample, func(s *pprof.Sample) bool { return label(s, "pid") != pid })
	return p.Compact()
}

// withoutProcess makes the samples of two processes comparable: equal stacks make equal samples.
// Addresses of code with source lines differ where it was loaded elsewhere or, as of Python,
// compiled again.
func withoutProcess(p *pprof.Profile) *pprof.Profile {
	p = p.Copy()
	for _, s := range p.Sample {
		for _, name := range []string{"pid", "process", "trend"} {
			delete(s.Label, name)
		}
		s.NumLabel, s.NumUnit = nil, nil // the mean size of its objects
	}
	for _, l := range p.Location {
		if len(l.Line) > 0 {
			l.Address = 0
			if l.Mapping != nil {
				l.Address = l.Mapping.Start
			}
		}
	}
	return p
}
