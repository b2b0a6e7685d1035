package summary

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A TreeProcess is a process of the traced tree.
type TreeProcess struct {
	PID    int `json:"pid"`
	Parent int `json:"parent_pid"`
	// Role is one of growth.Role…. Rank is the number of a distributed rank.
	Role    growth.Role `json:"role"`
	Rank    *int        `json:"rank,omitempty"`
	Command string      `json:"command"`
	// StartTicks is Target.StartTicks of this process; absent in folders of older versions.
	StartTicks int64 `json:"start_ticks,omitempty"`
	// Traced: with all sources. Other processes are only in the timeline.
	Traced bool `json:"traced"`
	// FirstS and LastS are when it was first and last seen.
	FirstS float64 `json:"first_s"`
	LastS  float64 `json:"last_s"`
	// StartBytes and EndBytes are its RSS then.
	StartBytes *int64 `json:"start_bytes,omitempty"`
	EndBytes   *int64 `json:"end_bytes,omitempty"`
	// Verdict on its RSS, and the rate with its 95% interval; absent if it was not traced.
	Verdict         verdict.Class `json:"verdict,omitempty"`
	RateBytesPerMin *float64      `json:"rate_bytes_per_min,omitempty"`
	RateLow         *float64      `json:"rate_low_bytes_per_min,omitempty"`
	RateHigh        *float64      `json:"rate_high_bytes_per_min,omitempty"`
	// Identity is which process of which job it is; absent if it was not traced, and in folders of
	// older versions.
	Identity *Identity `json:"identity,omitempty"`
}

// SetVerdict sets the verdict on the process, and the fields that depend on it.
func (p *TreeProcess) SetVerdict(v verdict.Verdict) {
	of := VerdictOf(v, AxisSeconds)
	p.Verdict = of.Class
	p.RateBytesPerMin, p.RateLow, p.RateHigh = of.Rate, of.RateLow, of.RateHigh
}

// A Related process is outside the tree of the main process, and grows.
type Related struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// Relation to the process that the user named, one of growth.Relation…; absent in folders of older
	// versions, where it is of the same job.
	Relation growth.Relation `json:"relation,omitempty"`
	// GrowthBytes is its RSS at the end less its RSS at SinceS, when it was first seen.
	GrowthBytes int64   `json:"growth_bytes"`
	SinceS      float64 `json:"since_s"`
	// RateBytesPerMin of its memory without files; absent where that has not grown all the time.
	RateBytesPerMin *float64 `json:"rate_bytes_per_min,omitempty"`
}

// Together is the forecast for a memory that others fill besides the main process.
type Together struct {
	// Limit of the memory that is full first, in ToLimitS, by all that grows in it.
	Limit           Limit   `json:"limit"`
	ToLimitS        float64 `json:"to_limit_s"`
	RateBytesPerMin float64 `json:"rate_bytes_per_min"`
	// PIDs of the other processes that grow, the fastest first, and the number of other Workers of the
	// tree that do.
	PIDs    []int `json:"pids"`
	Workers int   `json:"workers,omitempty"`
	// Outside is memory outside of the tree that grows besides; absent: there is none, or one of PIDs
	// has it.
	Outside conclude.OutsideKind `json:"outside,omitempty"`
}

// Outside is memory that no process of the tree holds, and that fills the job's memory, where it
// grows.
type Outside struct {
	// Kind is one of conclude.Outside….
	Kind conclude.OutsideKind `json:"kind"`
	// InCgroup: it counts against the limit of the cgroup.
	InCgroup bool `json:"in_cgroup,omitempty"`
	// Process outside of the tree that has grown most in the container; absent: it is other memory.
	Process *ContainerRow `json:"process,omitempty"`
	// Path of the file system in RAM that grows, and GrowthBytes, by how much, or by how much other
	// processes have grown; absent where it is not known. LeftBytes is left until its own limit;
	// absent without one.
	Path        string `json:"path,omitempty"`
	GrowthBytes int64  `json:"growth_bytes,omitempty"`
	LeftBytes   *int64 `json:"left_bytes,omitempty"`
	// NewFiles were written during the trace by the user of the process, NewBytes in all. Largest is
	// one of the largest.
	NewFiles int    `json:"new_files,omitempty"`
	NewBytes int64  `json:"new_bytes,omitempty"`
	Largest  string `json:"largest,omitempty"`
}

// OutsideOf converts a finding; nil: there is none.
func OutsideOf(o *conclude.Outside) *Outside {
	if o == nil {
		return nil
	}
	out := &Outside{Kind: o.Kind, InCgroup: o.InCgroup}
	if f := o.Files; f != nil {
		out.Path, out.GrowthBytes, out.LeftBytes = f.Path, f.Growth, Known(f.Left)
		out.NewFiles, out.NewBytes, out.Largest = f.New, f.NewBytes, f.Largest
	}
	if o.Process != nil {
		out.Process, out.GrowthBytes = &containerRows([]conclude.ContainerRow{*o.Process})[0], o.Grown
	}
	return out
}

// A Group is the workers of one role at the end of the trace.
type Group struct {
	Role growth.Role `json:"role"`
	// Service is the program whose workers they are, and Parent the process that starts them;
	// absent where the workers of several processes are one group, and in folders of older
	// versions.
	Service   string `json:"service,omitempty"`
	Parent    int    `json:"parent_pid,omitempty"`
	Processes int    `json:"processes"`
	// EachBytes is the median of their RSS, with shared pages counted for each.
	EachBytes *int64 `json:"rss_each_bytes,omitempty"`
	// PrivateBytes of all workers is the memory that no other process shares. PSSBytes adds their
	// part of shared memory.
	PrivateBytes *int64 `json:"private_bytes,omitempty"`
	PSSBytes     *int64 `json:"pss_bytes,omitempty"`
	// Verdict on PrivateBytes over the trace, and its rate.
	Verdict         verdict.Class `json:"verdict,omitempty"`
	RateBytesPerMin *float64      `json:"rate_bytes_per_min,omitempty"`
	// Traced workers are in Processes, too; absent: none is. LargestPID is the one with the largest
	// RSS.
	Traced     int `json:"traced,omitempty"`
	LargestPID int `json:"largest_pid,omitempty"`
	// Replaced workers have ended, and others have taken their place. Of them ReplacedGrowing grew
	// until their end, by the median ReplacedGrowthBytes in ReplacedLifeS.
	Replaced            int     `json:"replaced,omitempty"`
	ReplacedGrowing     int     `json:"replaced_growing,omitempty"`
	ReplacedGrowthBytes int64   `json:"replaced_growth_bytes,omitempty"`
	ReplacedLifeS       float64 `json:"replaced_life_s,omitempty"`
	// ReplacedTraced counts the replaced workers that grew and were traced. ReplacedSuspects have
	// the call sites of the memory that they held at their end.
	ReplacedTraced   int       `json:"replaced_traced,omitempty"`
	ReplacedSuspects []Suspect `json:"replaced_suspects,omitempty"`
}

// GrowingGroup is the group of workers behind verdict.ReasonWorkers, or the group that the main
// process is of, where that grows; nil: there is none.
func (s *Summary) GrowingGroup() *Group {
	main := growth.Role("")
	for _, p := range s.Processes {
		if p.PID == s.Process.PID && p.Role.IsWorker() {
			main = p.Role
		}
	}

	var fastest *Group
	for i := range s.Groups {
		g := &s.Groups[i]
		isAsked := g.Role == main || main == "" && s.WhyCode == verdict.ReasonWorkers
		if isAsked && g.Verdict.Grows() && g.RateBytesPerMin != nil &&
			(fastest == nil || *g.RateBytesPerMin > *fastest.RateBytesPerMin) {
			fastest = g
		}
	}
	return fastest
}

// CopiesOf is the diagnosis that most growth of the tree is pages which its workers share with their
// parent and copy; nil: it is not, or the verdict is not about workers.
func CopiesOf(s *Summary) *Diagnosis {
	if s.WhyCode != verdict.ReasonWorkers {
		return nil
	}
	for i, d := range s.Diagnoses {
		if d.Process == 0 && d.Cause == diagnosis.CopyOnWrite && d.Share > 0.5 {
			return &s.Diagnoses[i]
		}
	}
	return nil
}

// ReplacedGroup is the group of which most workers grew until they were replaced; nil: there is
// none.
func (s *Summary) ReplacedGroup() *Group {
	for i := range s.Groups {
		g := &s.Groups[i]
		of := growth.Group{
			GroupKey: growth.GroupKey{Role: g.Role},
			Replaced: g.Replaced, Growing: g.ReplacedGrowing,
		}
		if of.GrowUntilReplaced() {
			return g
		}
	}
	return nil
}

// A Limit is the memory limit that ends the growth.
type Limit struct {
	// Of is growth.LimitCgroup or another of these names.
	Of string `json:"of"`
	// Bytes is the limit; absent for the machine's limit.
	Bytes int64 `json:"bytes,omitempty"`
	// HeadroomBytes is the memory left below it at the end of the trace.
	HeadroomBytes int64 `json:"headroom_bytes"`
}

// Steps of training.
type Steps struct {
	Count  int64   `json:"count"`
	PerMin float64 `json:"per_min"`
	// GrowthBytesPerStep is the verdict's rate by step; absent if either is unknown.
	GrowthBytesPerStep *int64 `json:"growth_bytes_per_step,omitempty"`
}

// StepsPerMin is the rate of training steps; 0: unknown, or forged.
func (s *Summary) StepsPerMin() float64 {
	if s.Steps != nil && s.Steps.PerMin > 1e-6 && s.Steps.PerMin < 1e9 {
		return s.Steps.PerMin
	}
	return 0
}

// A Mark is a time that the program or its user has named.
type Mark struct {
	AtS  float64 `json:"at_s"`
	Text string  `json:"text"`
}
