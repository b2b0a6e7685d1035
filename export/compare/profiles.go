package compare

import (
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/units"
)

// A Profile is a pprof profile with the name of its file.
type Profile struct {
	Name string
	*pprof.Profile
}

// Profiles compares the amounts of two profiles. If only one has the sample types of GPU memory,
// the other has none of that. Profiles without a common sample type are an error.
func Profiles(before, after Profile, o Options) (*Result, error) {
	if o.PerStep {
		return nil, errors.New("profiles have no rate (compare two folders, or leave --per out)")
	}

	addMissingGPUTypes(before.Profile, after.Profile)

	sample, err := chooseType(o.Sample, before.Profile, after.Profile)
	if err != nil {
		return nil, err
	}

	out := &Result{
		Schema: Schema, SampleType: sample, Unit: UnitBytes, Before: before.side(),
		After: after.side(), Notes: []string{},
	}
	n := make(names)
	c := comparison{
		before: profileSide(before.Profile, sample, n),
		after:  profileSide(after.Profile, sample, n),
	}
	c.counted = isCountedType(sample)

	if ofOneTrace(before, after) {
		c.cancel(after.DurationNanos < before.DurationNanos)
	}

	c.fill(out)
	out.judgeAmounts()
	out.Notes = append(out.Notes, profileNotes(before, after)...)

	return out, nil
}

func (p Profile) side() Side {
	side := Side{Name: units.Name(p.Name), DurationS: float64(p.DurationNanos) / 1e9}
	if p.PeriodType != nil && p.PeriodType.Unit == "bytes" && p.Period > 0 {
		side.IntervalBytes = p.Period
	}

	if p.TimeNanos > 0 {
		side.Time = new(time.Unix(0, p.TimeNanos).UTC())
	}

	return side
}

// ofOneTrace reports whether two profiles are snapshots of one trace: they began at the same time,
// in the same processes.
func ofOneTrace(before, after Profile) bool {
	if before.TimeNanos == 0 || before.TimeNanos != after.TimeNanos ||
		before.Period != after.Period {
		return false
	}
	pids := pidsOf(before.Profile)
	return slices.ContainsFunc(pidsOf(after.Profile),
		func(pid string) bool { return slices.Contains(pids, pid) })
}

// maxPIDs bounds the processes that are compared.
const maxPIDs = 1000

func pidsOf(p *pprof.Profile) (pids []string) {
	seen := make(map[string]bool)
	for _, s := range p.Sample {
		if pid := label(s, "pid"); pid != "" && !seen[pid] && len(pids) < maxPIDs {
			seen[pid] = true
			pids = append(pids, pid)
		}
	}

	return pids
}

// cancel cancels objects that are alive at both snapshots of one trace. backwards: the first one is
// the later snapshot.
func (c *comparison) cancel(backwards bool) {
	start, end := c.before, c.after
	if backwards {
		start, end = end, start
	}

	changes, weights := &side{sites: make(map[string]*site)}, make(map[*site]float64)
	for _, key := range c.keys() {
		first, last := start.sites[key], end.sites[key]
		h := &site{kind: c.shown(key).kind, noAllocated: c.shown(key).noAllocated}
		var value, allocated float64
		if first != nil {
			value, allocated = -first.held.estimate().value, -first.allocated
			weights[h] += math.Abs(first.held.exact)
		}

		if last != nil {
			value, allocated = value+last.held.estimate().value, allocated+last.allocated
			weights[h] += math.Abs(last.held.exact)
		}

		h.held = turnover(first, last, value, h.maxAllocated(allocated), start.interval)

		if backwards {
			h.held = h.held.negative()
		}

		changes.sites[key] = h
	}

	changes.addRemainderErrors(func(h *site) float64 { return weights[h] })
	c.change = func(key string) amount { return changes.sites[key].held }
}

// ParseProfile reads a profile as profile.Read does, and removes the frames that it wants dropped.
func ParseProfile(r io.Reader) (*pprof.Profile, error) {
	p, err := profile.Read(r)
	if err != nil {
		return nil, err
	}
	return p, profile.DropFrames(p)
}
