package ranks

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/verdict"
)

// ReadFolder returns the ranks of a trace: all that it traced, or its main process where that is no
// rank. It reads summary.json alone; a missing or damaged one is an error.
func ReadFolder(dir *folder.Folder, name string) ([]Rank, error) {
	var s *summary.Summary
	err := dir.ReadFile(folder.SummaryFile, func(r io.Reader) (err error) {
		s, err = summary.Read(r)
		return err
	})
	if err != nil {
		return nil, err
	}

	var ranks []Rank
	for i := range s.Processes {
		if p := &s.Processes[i]; p.Traced && p.Rank != nil && *p.Rank >= 0 {
			ranks = append(ranks, rankOf(s, p, name))
		}
	}
	if len(ranks) == 0 {
		ranks = append(ranks, rankOf(s, mainProcess(s), name))
	}
	if len(ranks) == 1 && len(s.Suspects) > 0 && tracedProcesses(s) <= 1 {
		ranks[0].Where = units.Name(words.Frame(s.Suspects[0].Function))
	}
	return ranks, nil
}

// mainProcess is the main process of the tree.
func mainProcess(s *summary.Summary) *summary.TreeProcess {
	for i := range s.Processes {
		if s.Processes[i].PID == s.Process.PID {
			return &s.Processes[i]
		}
	}
	return &summary.TreeProcess{PID: s.Process.PID, Command: s.Process.Command, EndBytes: s.RSS.EndBytes}
}

// tracedProcesses is the number of processes whose stacks the suspects are of.
func tracedProcesses(s *summary.Summary) (n int) {
	for _, p := range s.Processes {
		if p.Traced {
			n++
		}
	}
	return n
}

// rankOf is one process of a trace.
func rankOf(s *summary.Summary, p *summary.TreeProcess, name string) Rank {
	k := Rank{
		PID: p.PID, Folder: units.Name(name), Path: name, At: s.Started,
		continues: s.ContinuedFrom != nil,
	}
	k.Name = fmt.Sprintf("PID %d", p.PID)
	if p.Rank != nil {
		k.SetNumber(*p.Rank)
	}
	if id := p.Identity; id != nil {
		k.job, k.Node = units.Name(id.Job), units.Name(id.Node)
		k.Pod, k.Container = units.Name(id.Pod), units.Name(id.Container)
		if id.WorldSize != nil {
			k.worldSize = *id.WorldSize
		} else { // a rank that knows its number on its node alone has that for its number
			k.IsLocal = id.Rank != nil && id.LocalRank != nil && *id.Rank == *id.LocalRank
		}
	}

	if p.EndBytes != nil {
		k.SetRSS(float64(*p.EndBytes))
	}
	v := verdictOf(s, p)
	k.Verdict = verdict.Class(units.Name(string(v.Class)))
	if v.Rate != nil {
		k.SetRate(*v.Rate, known(v.RateLow), known(v.RateHigh))
	}
	return k
}

// verdictOf is the verdict on a process. Summaries of older versions have the rate of the main
// process alone.
func verdictOf(s *summary.Summary, p *summary.TreeProcess) summary.Verdict {
	if p.RateBytesPerMin == nil && p.PID == s.Process.PID {
		v := s.Verdict
		v.Class = cmp.Or(p.Verdict, v.Class)
		return v
	}
	return summary.Verdict{
		Class: p.Verdict, Rate: p.RateBytesPerMin, RateLow: p.RateLow, RateHigh: p.RateHigh,
	}
}

func known(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// ReadGrowth reads the profiles of a rank from the folder of its trace.
func ReadGrowth(dir *folder.Folder, k *Rank) (*compare.Trace, error) {
	t, err := compare.ReadTrace(dir, k.Name)
	if err != nil {
		return nil, err
	}

	pid := strconv.Itoa(k.PID)
	for _, p := range []**pprof.Profile{&t.Growth, &t.Warmup, &t.Plateau} {
		*p = compare.OfProcess(*p, pid)
	}
	if len(t.Plateau.Sample) == 0 {
		return nil, fmt.Errorf("the profiles in %s have nothing of PID %s", k.Folder, pid)
	}

	s := *t.Summary
	for i := range s.Processes {
		if p := &s.Processes[i]; p.PID == k.PID {
			s.Verdict = verdictOf(t.Summary, p)
			s.Process = summary.Process{PID: p.PID, Command: p.Command}
		}
	}
	s.Breakdown = nil
	for _, row := range t.Summary.Breakdown {
		if row.Process == k.PID {
			s.Breakdown = append(s.Breakdown, row)
		}
	}
	t.Summary = &s
	return t, nil
}

// CompareTraces compares a rank with the median rank, by the profiles of their traces, in bytes a
// minute.
func (r *Result) CompareTraces(rank, median int, of, with *compare.Trace) error {
	result, err := compare.Traces(with, of, compare.Options{})
	if err != nil {
		return err
	}
	r.setComparison(rank, median, result)
	r.of, r.with = of.Growth, with.Growth
	r.factor = float64(of.Growth.DurationNanos) / float64(with.Growth.DurationNanos)
	names := [2]string{r.Ranks[rank].Name, r.Ranks[median].Name}
	isResident := result.SampleType == residentSpace
	r.Notes = append(r.Notes,
		words.RanksNotes(names, [2]*summary.Summary{of.Summary, with.Summary}, isResident)...)
	return nil
}

// WriteProfile writes the growth profile of a rank less the profile of the median rank, in pprof's
// format: a stack of which the median rank gains more is negative. The median rank's gains are
// scaled to the length of the rank's trace. It is an error if no profiles were compared.
func (r *Result) WriteProfile(w io.Writer) error {
	if r.Comparison == nil {
		return errors.New("no profiles were compared")
	}
	p, err := compare.Minus(r.of, r.with, r.factor)
	if err != nil {
		return err
	}
	return p.Write(w)
}

const residentSpace = "resident_space"

// CompareProfiles compares a rank with the median rank, by profiles of their gains, in bytes. The
// median rank's gains are scaled to the length of the rank's trace: both must have a duration. nil:
// the median rank has none, so that all growth of the other one counts.
func (r *Result) CompareProfiles(rank, median int, of, with *pprof.Profile) error {
	isAlone := with == nil
	if isAlone {
		with = &pprof.Profile{
			SampleType: of.SampleType, PeriodType: of.PeriodType, Period: of.Period,
			DefaultSampleType: of.DefaultSampleType,
		}
	} else {
		if of.DurationNanos <= 0 || with.DurationNanos <= 0 {
			return errors.New("the length of a trace is not known")
		}

		with = with.Copy()
		with.Scale(float64(of.DurationNanos) / float64(with.DurationNanos))
	}
	result, err := compare.Profiles(compare.Profile{Name: r.Ranks[median].Name, Profile: with},
		compare.Profile{Name: r.Ranks[rank].Name, Profile: of}, compare.Options{})
	if err != nil {
		return err
	}
	r.setComparison(rank, median, result)
	r.of, r.with, r.factor = of, with, 1
	if isAlone && r.Comparison.Site != SiteUnknown {
		r.Comparison.Site = SiteAlone
	}
	return nil
}

// minSiteShare is the part of the growth of a rank by which a call site must differ, to be named.
const minSiteShare = 0.05

// maxOtherShare is the part of a rank's growth by a call site up to which the growth of another rank
// there does not count.
const maxOtherShare = 0.1

// setComparison takes over the result of comparing two profiles.
func (r *Result) setComparison(rank, median int, of *compare.Result) {
	c := &Comparison{
		Rank: r.Ranks[rank].Name, MedianRank: r.Ranks[median].Name, Site: SiteUnknown,
		SampleType: of.SampleType, Unit: of.Unit, Total: of.Total, Components: of.Components,
		Stacks: of.Stacks, result: of,
	}
	r.Comparison = c

	least := minSiteShare * math.Abs(float64(of.Total.After.Bytes))
	if s := siteOf(of.Stacks, least); s != nil {
		c.Where, c.Site = s.CallSite(), SiteSame
		if s.State == compare.StateAppeared ||
			float64(s.Before.Bytes) <= maxOtherShare*float64(s.After.Bytes) {
			c.Site = SiteOnly
		}
		r.Ranks[rank].Where = c.Where
	}
}

// siteOf is the stack that grows most beyond its growth in the other rank, by so many bytes at
// least, a call site if there is one; nil: none is proven to.
func siteOf(stacks []compare.StackRow, least float64) *compare.StackRow {
	var first *compare.StackRow
	for i := range stacks {
		s := &stacks[i]
		grew := s.State == compare.StateAppeared || s.State == compare.StateGrew
		if !grew || s.After.Bytes <= 0 || float64(s.Change.Bytes) < least {
			continue
		}
		if !strings.HasPrefix(s.Function, "[") {
			return s
		}
		if first == nil {
			first = s
		}
	}
	return first
}
