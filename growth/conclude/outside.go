package conclude

import (
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Outside is memory that no process of the tree holds, and that fills the job's memory, where it
// grows.
type Outside struct {
	Kind    OutsideKind
	Verdict verdict.Verdict
	// Files are the file system in RAM that grows; nil: it is not known.
	Files *growth.RAMFiles
	// Process outside of the tree that has grown most, and Grown, by how much all such have;
	// nil: it is other memory.
	Process *ContainerRow
	Grown   int64
	// InCgroup: the memory counts against the limit of the cgroup. HasOthers: the verdict counts other
	// processes, too.
	InCgroup, HasOthers bool
}

// isOfProcesses reports whether other processes hold the memory; false of nil.
func (o *Outside) isOfProcesses() bool { return o != nil && o.Process != nil }

// MinOneShare is the share of the growth of other processes from which on one process has it.
const MinOneShare = 0.9

// isOfOne reports whether one other process holds the memory; false of nil.
func (o *Outside) isOfOne() bool {
	return o.isOfProcesses() && float64(o.Process.Delta()) >= MinOneShare*float64(o.Grown)
}

// An OutsideKind is a kind of memory that no process of the tree holds.
type OutsideKind string

// The kinds.
const (
	OutsideFiles  OutsideKind = "ram-files" // files of a tmpfs, and shared memory that nobody maps
	OutsideKernel OutsideKind = "kernel"    // memory of the kernel that it cannot drop
	// OutsideProcesses have their memory charged to the cgroup, and are not of the tree.
	OutsideProcesses OutsideKind = "processes"
	OutsideUnknown   OutsideKind = "unknown" // charged to the cgroup
)

// minOutsideGrowth is the growth in bytes of memory outside of processes from which on it counts,
// and minNewShare the share of it that new files of the job's user must be, where the memory is the
// machine's, and so anybody's.
const (
	minOutsideGrowth = 64 << 20
	minNewShare      = 0.5
)

// outside finds memory that grows outside of the processes; nil: there is none. Memory of a cgroup
// with a limit is the job's: c has its rows, or is nil. Of the machine, only files count that the
// user of the process has written since tracing began.
func (t *Trace) outside(c *Container) *Outside {
	rows := t.ownRows()
	if len(rows) == 0 {
		return nil
	}
	last := rows[len(rows)-1].System
	inCgroup := last.HasCgroupLimit()

	ofShared := func(r *growth.Row) int64 { return r.System.Shared }
	shared, grown := judgeOutside(rows, ofShared, t.Criteria)
	if files := grownFiles(t.RAMFiles, grown, inCgroup); grown >= minOutsideGrowth &&
		(inCgroup || files != nil) {
		if !inCgroup {
			shared = ofFiles(shared, files, rows)
		}
		return &Outside{
			Kind: OutsideFiles, Verdict: limited(shared, files), Files: files, InCgroup: inCgroup,
		}
	}
	if !inCgroup {
		return nil
	}

	ofKernel := func(r *growth.Row) int64 { return r.System.Kernel }
	kernel, grown := judgeOutside(rows, ofKernel, t.Criteria)
	if grown >= minOutsideGrowth {
		return &Outside{Kind: OutsideKernel, Verdict: kernel, InCgroup: true}
	}
	all, grown := judgeOutside(rows, func(r *growth.Row) int64 {
		if r.System.CgroupUsed == growth.Unknown || r.Tree.RSS == growth.Unknown {
			return growth.Unknown
		}
		return r.System.CgroupUsed - r.Tree.RSS
	}, t.Criteria)
	if grown < minOutsideGrowth {
		return nil
	}
	if c != nil {
		return c.outside(t.History, all)
	}
	if slices.ContainsFunc(t.Others, func(o growth.OtherProcess) bool { return o.InCgroup }) {
		return nil // it may have the memory
	}
	return &Outside{Kind: OutsideUnknown, Verdict: all, InCgroup: true, HasOthers: true}
}

// outside is the memory outside of the tree that has grown in the rows of a container; nil: only
// memory has that the kernel takes back.
func (c *Container) outside(tree *growth.History, v verdict.Verdict) *Outside {
	o := &Outside{Kind: OutsideUnknown, Verdict: v, InCgroup: true, HasOthers: true}

	inTree := make(map[int]bool)
	for _, p := range tree.Processes {
		inTree[p.PID] = true
	}

	var kernel, rest, forked int64
	for i := range c.all {
		r := &c.all[i]
		isProcess := r.Kind == growth.ContainerAnonymous && r.Key != ""
		switch {
		case r.Kind.IsReclaimable(), inTree[r.PID]:
		case isProcess && (o.Process == nil || r.Delta() > o.Process.Delta()):
			o.Process = r
			o.Grown += r.Delta()
		case isProcess:
			o.Grown += r.Delta()
		case r.Kind == growth.ContainerForked:
			forked = min(0, r.Delta())
		case r.Kind.IsKernel():
			kernel += r.Delta()
		default:
			rest += r.Delta()
		}
	}

	// The rows are of two moments, and v may be about cache that the kernel counts as in use.
	charged := v.Rate * (c.Last.Elapsed - c.First.Elapsed).Seconds()
	if forked < 0 { // several have some of it, which may be processes of the tree
		o.Grown = min(o.Grown, max(o.Grown+forked, int64(charged)))
	}
	all := o.Grown + kernel + rest
	switch {
	case float64(all) < max(minReadGrowth, minExplained*charged):
		return nil
	case o.Grown >= max(kernel, rest):
		o.Kind = OutsideProcesses
		return o
	case kernel >= max(o.Grown, rest):
		o.Kind = OutsideKernel
	}
	o.Process, o.Grown = nil, 0
	return o
}

// minReadGrowth is the growth between two readings of a container, in bytes, from which on they
// show which memory grows, and minExplained the share of the growth of its charge that this must be.
const (
	minReadGrowth = 16 << 20
	minExplained  = 0.7
)

// judgeOutside judges one memory of the machine or the cgroup. grown is its growth in bytes; 0: it
// does not grow.
func judgeOutside(
	rows []growth.Row, of func(*growth.Row) int64, c verdict.Criteria,
) (v verdict.Verdict, grown float64) {
	var s verdict.Series
	for i := range rows {
		if bytes := of(&rows[i]); bytes != growth.Unknown {
			s.X = append(s.X, rows[i].Elapsed.Seconds())
			s.Y = append(s.Y, float64(bytes))
		}
	}

	var setting verdict.Setting
	start := math.Inf(-1) // a fall is no restart
	setting.Start = &start
	if first := rows[len(rows)-1].System.Headroom(); first.Of != "" && len(s.Y) > 0 {
		setting.Limit = s.Y[len(s.Y)-1] + float64(first.Left)
	}

	if v = verdict.Judge(s, setting, c); v.Class.Grows() {
		grown = max(v.Rate*v.Length, grownInAll(s, v.Rate))
	}
	return v, grown
}

// grownInAll is the growth of a whole series, of which the verdict may judge the last segment
// alone. A jump counts as far as the rate explains it.
func grownInAll(s verdict.Series, rate float64) float64 {
	last := len(s.X) - 1
	return min(s.Y[last]-s.Y[0], rate*(s.X[last]-s.X[0]))
}

// grownFiles is the one of all file systems in RAM that explains growth; nil: none does.
func grownFiles(all []growth.RAMFiles, grown float64, inCgroup bool) *growth.RAMFiles {
	for i := range all {
		f := &all[i]
		own := float64(f.NewBytes)
		if inCgroup {
			own = float64(f.Growth)
		}
		if grown > 0 && own >= minNewShare*grown {
			return f
		}
	}
	return nil
}

// ofFiles is the verdict on shared memory of the machine, of which other programs have a part, with
// the rate at which the files of the job's user grow.
func ofFiles(v verdict.Verdict, files *growth.RAMFiles, rows []growth.Row) verdict.Verdict {
	last := rows[len(rows)-1]
	nan, seconds := math.NaN(), (last.Elapsed - rows[0].Elapsed).Seconds()
	v.Rate = float64(files.NewBytes) / seconds
	v.RateLow, v.RateHigh, v.Bound = nan, nan, nan

	v.ToLimit, v.ToLimitLow, v.ToLimitHigh = nan, nan, nan
	if first := last.System.Headroom(); first.Of != "" && v.Rate > 0 {
		v.ToLimit = float64(first.Left) / v.Rate
	}
	return v
}

// limited is a verdict on files, whose file system may be full before the memory is.
func limited(v verdict.Verdict, files *growth.RAMFiles) verdict.Verdict {
	if files == nil || files.Left == growth.Unknown || v.Rate <= 0 {
		return v
	}
	if until := float64(files.Left) / v.Rate; math.IsNaN(v.ToLimit) || until < v.ToLimit {
		v.ToLimit, v.ToLimitLow, v.ToLimitHigh = until, math.NaN(), math.NaN()
	}
	return v
}
