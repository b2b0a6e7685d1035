package judge

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	mib = 1 << 20

	judgedPID  = 7
	otherPID   = 8
	grownLevel = 1 << 30 // bytes at the first sample
)

// mebibytes are growth of 1 MiB a second, which the series alone calls growing until it has been
// watched for long.
func mebibytes(second float64) float64 { return second * mib }

func still(float64) float64 { return 0 }

// warming grows ten times as fast for 100 s, and steadily from then on.
func warming(second float64) float64 { return mebibytes(second) + 10*mebibytes(min(second, 100)) }

func pausing(second float64) float64 { return mebibytes(second - min(20, max(0, second-100))) }

// watched is a process of an age that holds so much more than grownLevel in each second of a trace,
// all of it by one stack.
func watched(age time.Duration, seconds int, held func(second float64) float64) Case {
	track := &growth.ProcessHistory{Last: time.Duration(seconds) * time.Second}
	track.Member = growth.Member{Process: growth.Process{PID: judgedPID, Born: -age}, Traced: true}
	for s := range seconds + 1 {
		rss := int64(grownLevel + held(float64(s)))
		track.Timeline = append(track.Timeline,
			growth.Sample{Elapsed: time.Duration(s) * time.Second, RSS: rss, Steps: 3 * int64(s)})
	}
	c := Case{Process: track, Headroom: growth.Unknown, Criteria: verdict.InSeconds()}
	for s := 0; s <= seconds; s += 5 {
		at := &growth.Snapshot{Elapsed: time.Duration(s) * time.Second, Alive: []int{judgedPID}}
		at.Holdings = []growth.Holding{holding(judgedPID, int64(held(float64(s))))}
		c.Snapshots = append(c.Snapshots, at)
	}
	return c
}

// holding is the holding of the only stack of a process; all have the same ID.
func holding(pid int, bytes int64) growth.Holding {
	return growth.Holding{
		Stack: &growth.Stack{ID: 1, PID: pid}, Kind: growth.KindMmap, InuseBytes: bytes,
	}
}

// explaining leaves the stack a share of its memory.
func (c Case) explaining(share float64) Case {
	for _, s := range c.Snapshots {
		s.Holdings[0].InuseBytes = int64(share * float64(s.Holdings[0].InuseBytes))
	}
	return c
}

func TestProcessSuspected(t *testing.T) {
	withoutSnapshots := watched(2*time.Hour, 300, mebibytes)
	withoutSnapshots.Snapshots = nil
	late := watched(2*time.Hour, 300, mebibytes)
	for _, s := range late.Snapshots[:len(late.Snapshots)-5] {
		s.Holdings[0].InuseBytes = 0
	}
	tolerated := watched(2*time.Hour, 300, mebibytes)
	tolerated.Tolerable = 2 * mib
	for name, c := range map[string]struct {
		Case
		want verdict.Class
	}{
		"an old process":                     {watched(2*time.Hour, 300, mebibytes), verdict.ClassSuspected},
		"the last second is not there yet":   {watched(2*time.Hour, 298, mebibytes), verdict.ClassSuspected},
		"too short a trace":                  {watched(2*time.Hour, 290, mebibytes), verdict.ClassGrowing},
		"no longer young":                    {watched(time.Hour, 300, mebibytes), verdict.ClassSuspected},
		"young":                              {watched(time.Hour-time.Second, 300, mebibytes), verdict.ClassGrowing},
		"young, and its warm-up is seen":     {watched(0, 400, warming), verdict.ClassSuspected},
		"hardly past its warm-up":            {watched(0, 180, warming), verdict.ClassGrowing},
		"young, and paused for a while":      {watched(0, 440, pausing), verdict.ClassGrowing},
		"old, and paused for a while":        {watched(2*time.Hour, 440, pausing), verdict.ClassSuspected},
		"stacks explain more than half":      {watched(2*time.Hour, 300, mebibytes).explaining(0.51), verdict.ClassSuspected},
		"stacks explain less than half":      {watched(2*time.Hour, 300, mebibytes).explaining(0.49), verdict.ClassGrowing},
		"stacks explain nothing":             {withoutSnapshots, verdict.ClassGrowing},
		"what is alive is young":             {late, verdict.ClassGrowing},
		"no growth":                          {watched(2*time.Hour, 300, still), verdict.ClassPlateau},
		"growth that the user tolerates":     {tolerated, verdict.ClassPlateau},
		"watched for as long as a leak asks": {watched(2*time.Hour, 700, mebibytes), verdict.ClassLeak},
	} {
		if got := Process(c.Case); got.Class != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got.Class, got.Reason, c.want)
		}
	}
}

// Code that explains next to nothing is no suspect.
func TestProcessExplained(t *testing.T) {
	for share, want := range map[float64]int{0.01: 0, 0.03: 1, 1: 1} {
		c := watched(2*time.Hour, 300, mebibytes).explaining(share)
		if got := Process(c).Suspects; len(got) != want {
			t.Errorf("stacks explain %.0f%%: suspects %+v, want %d", 100*share, got, want)
		}
	}
}

func TestProcess(t *testing.T) {
	t.Run("holdings of other processes do not count", func(t *testing.T) {
		c := watched(2*time.Hour, 300, mebibytes).explaining(0.1).other()
		got := Process(c)
		if got.Class != verdict.ClassGrowing || len(got.Trends) != 1 ||
			got.Trends[0].Stack.PID != judgedPID {
			t.Errorf("%s, trends %+v; want growing, and the stack of %d alone", got.Class,
				got.Trends, judgedPID)
		}
		if len(c.Snapshots[0].Holdings) != 2 {
			t.Error("the trace's own snapshots were changed")
		}
	})

	// Memory of the PID before its process executed another program belongs to another life,
	// however near that snapshot is.
	t.Run("holdings from before an exec do not count", func(t *testing.T) {
		c := watched(2*time.Hour, 300, mebibytes)
		c.Process.From = 105 * time.Second
		var rare []*growth.Snapshot
		for i := 0; i < len(c.Snapshots); i += 10 {
			rare = append(rare, c.Snapshots[i])
		}
		rare[2].Holdings[0].InuseBytes = 1000 * mib // at 100 s, and the window begins at 124.5 s
		c.Snapshots = rare
		got := Process(c)
		if len(got.Trends) != 1 || got.Trends[0].Trend != growth.TrendAccumulating ||
			got.Trends[0].Growth != 150*mib {
			t.Errorf("trends %+v, want what has accumulated since 150 s", got.Trends)
		}
	})

	t.Run("the window ends with the process", func(t *testing.T) {
		c := watched(2*time.Hour, 300, mebibytes).other()
		for _, s := range c.Snapshots {
			if s.Elapsed > 200*time.Second {
				s.Alive = []int{otherPID}
			}
		}
		if got := Process(c); got.Window.To != 200*time.Second || len(got.Trends) != 1 {
			t.Errorf("window %+v with trends %+v, want it to end at 200 s", got.Window, got.Trends)
		}
	})

	t.Run("the headroom is the limit", func(t *testing.T) {
		c := watched(2*time.Hour, 700, mebibytes)
		for headroom, seconds := range map[int64]float64{600 * mib: 600, 0: 0} {
			c.Headroom = headroom
			got := Process(c)
			if math.Abs(got.ToLimit-seconds) > 0.01*seconds+1e-9 || got.ToLimitLow > got.ToLimit ||
				got.ToLimitHigh < got.ToLimit {
				t.Errorf("full in %v s (%v to %v), want %v", got.ToLimit, got.ToLimitLow,
					got.ToLimitHigh, seconds)
			}
		}
		c.Headroom = growth.Unknown
		if got := Process(c); !math.IsNaN(got.ToLimit) {
			t.Errorf("full in %v s, want that it is unknown", got.ToLimit)
		}
	})

	t.Run("without data", func(t *testing.T) {
		gaps := watched(2*time.Hour, 300, mebibytes)
		for i := range gaps.Process.Timeline {
			gaps.Process.Timeline[i] = growth.UnknownSample()
		}
		gaps.Headroom = mib
		unseen := watched(2*time.Hour, 300, mebibytes)
		unseen.Snapshots[0].Alive = nil
		unseen.Snapshots = unseen.Snapshots[:1]
		empty, single := gaps, gaps
		empty.Process = &growth.ProcessHistory{}
		single.Process = &growth.ProcessHistory{
			Timeline: growth.Timeline{{RSS: 5, Steps: growth.Unknown}},
		}
		for name, c := range map[string]Case{
			"no samples": empty, "one sample": single, "nothing but gaps": gaps,
		} {
			got := Process(c)
			if got.Class != verdict.ClassTooShort || !math.IsNaN(got.Rate) ||
				!math.IsNaN(got.ToLimit) || !math.IsNaN(got.StepsPerSecond) {
				t.Errorf("%s: %+v, want that it is too short to tell", name, got)
			}
		}

		if got := Process(unseen); got.Window != (trend.Window{}) || got.Trends != nil ||
			got.Class != verdict.ClassGrowing {
			t.Errorf("alive in no snapshot: %s in %+v with %+v, want no stacks", got.Class,
				got.Window, got.Trends)
		}
	})
}

func TestProcessWindow(t *testing.T) {
	late := watched(2*time.Hour, 300, mebibytes)
	late.Process.From = 100 * time.Second
	said, tooLate := watched(0, 400, warming), watched(0, 400, warming)
	said.Warmup, tooLate.Warmup = 30*time.Second, 400*time.Second
	for name, c := range map[string]struct {
		Case
		from, tolerance time.Duration
	}{
		"no warm-up is seen":         {watched(2*time.Hour, 300, mebibytes), 30 * time.Second, 0},
		"traced from a third on":     {late, 120 * time.Second, 0},
		"a warm-up is seen":          {watched(0, 400, warming), 100 * time.Second, 20 * time.Second},
		"the user says when it ends": {said, 30 * time.Second, 0},
		"it ends with the trace":     {tooLate, 100 * time.Second, 20 * time.Second},
	} {
		got := Process(c.Case)
		if off := (got.Window.From - c.from).Abs(); off > c.tolerance {
			t.Errorf("%s: judged from %s, want %s within %s", name, got.Window.From, c.from,
				c.tolerance)
		}
		if want := c.Snapshots[len(c.Snapshots)-1].Elapsed; got.Window.To != want {
			t.Errorf("%s: judged until %s, want the last snapshot at %s", name, got.Window.To, want)
		}
		if math.Abs(got.StepsPerSecond-3) > 1e-9 {
			t.Errorf("%s: %v steps a second, want 3", name, got.StepsPerSecond)
		}
	}
}

// TestProcessLateBursts judges stacks before the first burst, where they grew for longer then.
func TestProcessLateBursts(t *testing.T) {
	const seconds = 300
	late := func(second float64) float64 { return mebibytes(max(0, second-220)) }
	for name, c := range map[string]struct {
		held   func(float64) float64
		bursts int // from this second on
		births bool
		until  time.Duration
	}{
		"late":                    {mebibytes, 202, true, 200 * time.Second},
		"nearly at the end":       {mebibytes, 292, true, 290 * time.Second},
		"early":                   {mebibytes, 52, true, seconds * time.Second},
		"no births":               {mebibytes, 202, false, seconds * time.Second},
		"it grows since they are": {late, 202, true, seconds * time.Second},
	} {
		of := watched(2*time.Hour, seconds, c.held)
		for _, s := range of.Snapshots {
			h := &s.Holdings[0]
			h.Kind = growth.KindHeap
			at := int(s.Elapsed / time.Second)
			if at >= c.bursts {
				h.InuseBytes = int64(c.held(float64(c.bursts)))
				s.Heap = growth.HeapCoverage{
					Bursts: 1, Since: time.Duration(c.bursts) * time.Second, Lag: 30 * time.Second,
				}
				continue
			}
			for bin := 0; c.births && bin < at; bin += 5 {
				s.Bins = append(s.Bins, time.Duration(bin+5)*time.Second)
				born := c.held(float64(bin+5)) - c.held(float64(bin))
				h.Births = append(h.Births, growth.Birth{Bin: len(s.Bins) - 1, InuseBytes: born})
			}
		}

		got := Process(of)
		if got.Window.To != c.until {
			t.Errorf("%s: judged until %s, want %s", name, got.Window.To, c.until)
		}
		if isNamed := len(got.Suspects) == 1; isNamed != (c.until < seconds*time.Second) {
			t.Errorf("%s: %+v", name, got.Suspects)
		}
	}
}

// TestProcessEnded names what grew where the growth ended too shortly before the end for a verdict.
func TestProcessEnded(t *testing.T) {
	c := watched(0, 96, func(second float64) float64 { return mebibytes(min(second, 62)) })
	for _, s := range c.Snapshots {
		bytes := s.Holdings[0].InuseBytes
		s.Holdings[0].ResidentBytes = bytes
		s.Residents = []growth.Resident{{PID: judgedPID, RSS: grownLevel + bytes}}
	}

	got := Process(c)
	if got.Class != verdict.ClassTooShort || got.Reason != verdict.ReasonGrowthEnded {
		t.Fatalf("%s (%s)", got.Class, got.Reason)
	}
	if len(got.Suspects) != 1 || math.Abs(got.Suspects[0].Share-1) > 0.05 {
		t.Errorf("%+v", got.Suspects)
	}
	if d := got.Diagnoses; len(d) != 1 || d[0].Cause != diagnosis.MmapGrowth ||
		d[0].Confidence != diagnosis.Medium {
		t.Errorf("%+v", d)
	}

	flat := Process(watched(0, 58, still))
	if flat.Reason == verdict.ReasonGrowthEnded || len(flat.Suspects) > 0 {
		t.Errorf("%s, %+v", flat.Reason, flat.Suspects)
	}
}

// The process maps a file of code every 5 s, and 100 before the window begins.
func TestProcessNewCode(t *testing.T) {
	compiler := growth.Frame{
		Function: "_fn", File: "/x/site-packages/torch/_dynamo/eval_frame.py", Python: true,
	}
	main := growth.Frame{Function: "main", File: "/src/train.py", Line: 7, Python: true}
	for name, c := range map[string]struct {
		frames []growth.Frame
		want   float64 // per second
	}{
		"below the compiler": {[]growth.Frame{compiler, main}, 0.2},
		"no compiler":        {[]growth.Frame{main}, 0},
	} {
		process := watched(2*time.Hour, 300, mebibytes)
		stack := &growth.Stack{ID: 7, PID: judgedPID, Frames: c.frames}
		for _, s := range process.Snapshots {
			s.Holdings[0].Stack = stack
			files := int64(s.Elapsed / (5 * time.Second))
			if s.Elapsed > 20*time.Second {
				files += 100
			}
			s.Residents = []growth.Resident{
				{PID: otherPID, CodeFiles: 9 * files}, {PID: judgedPID, CodeFiles: files},
			}
		}
		got := Process(process)
		if len(got.Suspects) != 1 || math.Abs(got.Suspects[0].NewCode-c.want) > 0.01 {
			t.Errorf("%s: %+v, want %v", name, got.Suspects, c.want)
		}
	}

	alone := watched(2*time.Hour, 300, mebibytes).Snapshots[:1]
	if got := newCode(judgedPID, alone, trend.Window{To: time.Hour}); got != 0 {
		t.Errorf("%v by one snapshot", got)
	}
}

// A process of ten minutes grows: where its warm-up is said to have ended in time, that is a leak.
func TestProcessWarmup(t *testing.T) {
	for _, c := range []struct {
		warmup time.Duration
		mark   time.Duration
		want   verdict.Class
	}{
		{0, 0, verdict.ClassGrowing},
		{90 * time.Second, 0, verdict.ClassLeak},
		{0, 90 * time.Second, verdict.ClassLeak},
		{90 * time.Second, 500 * time.Second, verdict.ClassLeak},
		{500 * time.Second, 90 * time.Second, verdict.ClassSuspected},
		{0, 500 * time.Second, verdict.ClassSuspected},
		{0, 680 * time.Second, verdict.ClassGrowing},
	} {
		process := watched(0, 700, mebibytes)
		process.Warmup = c.warmup
		if c.mark != 0 {
			process.Marks = []growth.Mark{{At: c.mark, Text: "epoch 1"}}
		}
		if got := Process(process); got.Class != c.want {
			t.Errorf("warm-up of %s, epoch at %s: %s (%s), want %s", c.warmup, c.mark, got.Class,
				got.Reason, c.want)
		}
	}
}

// other adds a process that grows faster, by its own stack with the same ID.
func (c Case) other() Case {
	for i, s := range c.Snapshots {
		s.Alive = append(s.Alive, otherPID)
		s.Holdings = append(s.Holdings, holding(otherPID, int64(i)*100*mib))
	}
	return c
}

// growing is a history of 20 s in which the tree grows evenly by so many bytes.
func growing(tree int64) *growth.History {
	var h growth.History
	for second := range int64(21) {
		at := time.Duration(second) * time.Second
		h.Add(growth.TreeSample{
			Elapsed: at,
			Members: []growth.Member{{Process: growth.Process{PID: 1}, Traced: true}},
			Processes: []growth.ProcessSample{
				{PID: 1, Sample: growth.Sample{Elapsed: at, RSS: mib + tree*second/20}},
			},
		})
	}
	return &h
}

func TestOtherGrowth(t *testing.T) {
	trainer := []growth.OtherProcess{{PID: 7, Relation: growth.RelationStarted, Command: "python3 train.py", Growth: 1100 * mib}}
	helper := []growth.OtherProcess{{PID: 7, Relation: growth.RelationStarted, Command: "python3 log.py", Growth: 100 * mib}}
	sibling := []growth.OtherProcess{{PID: 7, Relation: growth.RelationJob, Growth: 1100 * mib}}
	for name, c := range map[string]struct {
		tree   int64
		others []growth.OtherProcess
		want   bool
	}{
		"a wrapper":          {3 * mib, trainer, true},
		"the tree grows too": {2000 * mib, trainer, false},
		"little grows":       {0, helper, false},
		"no other processes": {0, nil, false},
		"one that the launcher of the tree has started": {3 * mib, sibling, false},
	} {
		criteria := verdict.Criteria{MinPlateauLength: 10, MinOutsideGrowth: 256 * mib}
		h := growing(c.tree)
		got := OtherGrowth(h.Rows, c.others, criteria)
		if (got != nil) != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		if got != nil && (got.PID != 7 || got.Command != "python3 train.py" || got.Growth != 1100*mib) {
			t.Errorf("%s: %+v, want the trainer", name, got)
		}

		criteria.MinPlateauLength = 60 // the trace has 20 s
		if got := OtherGrowth(h.Rows, c.others, criteria); got != nil {
			t.Errorf("%s: %+v of a short trace", name, got)
		}
	}
}

// growingIn is a process of five minutes whose RSS grows in one kind of memory that no source sees
// being allocated.
func growingIn(kind growth.Kind, root string) Case {
	c := watched(0, 300, mebibytes)
	for i := range c.Process.Timeline {
		s := &c.Process.Timeline[i]
		s.File, s.Anonymous = s.RSS-grownLevel, grownLevel
	}
	for _, s := range c.Snapshots {
		bytes := int64(mebibytes(s.Elapsed.Seconds()))
		s.Residents = []growth.Resident{{PID: judgedPID, RSS: grownLevel + bytes}}
		s.Holdings = []growth.Holding{{
			Stack: growth.NamedStack(judgedPID, root), Kind: kind, ResidentBytes: bytes,
		}}
	}
	return c
}

// freeing adds a stack that allocates and frees as many bytes as RSS grows, times a factor.
func (c Case) freeing(factor float64) Case {
	for _, s := range c.Snapshots {
		s.Holdings = append(s.Holdings, growth.Holding{
			Stack: &growth.Stack{ID: 2, PID: judgedPID}, Kind: growth.KindHeap,
			AllocBytes: factor * mebibytes(s.Elapsed.Seconds()),
		})
	}
	return c
}

func TestProcessDiagnoses(t *testing.T) {
	t.Run("the verdict names freed memory", func(t *testing.T) {
		got := Process(growingIn(growth.KindRetained, "[heap: free but resident]").freeing(1))
		if got.Class != verdict.ClassGrowing || got.Reason != verdict.ReasonFragmentation ||
			len(got.Diagnoses) != 1 || got.Diagnoses[0].Cause != diagnosis.Fragmentation {
			t.Errorf("%s (%s), %+v", got.Class, got.Reason, got.Diagnoses)
		}
	})

	t.Run("memory that was not freed is no freed memory", func(t *testing.T) {
		got := Process(growingIn(growth.KindRetained, "[heap: free but resident]").freeing(0))
		if got.Reason != verdict.ReasonStillGrowing || len(got.Diagnoses) != 1 ||
			got.Diagnoses[0].Cause != diagnosis.Undecided {
			t.Errorf("%s (%s), %+v", got.Class, got.Reason, got.Diagnoses)
		}
	})

	t.Run("objects are kept beside freed memory", func(t *testing.T) {
		for share, want := range map[float64]verdict.Reason{
			0.1: verdict.ReasonFragmentation, 0.19: verdict.ReasonFragmentation,
			0.21: verdict.ReasonFragmentation, 0.24: verdict.ReasonStillGrowing,
			0.33: verdict.ReasonStillGrowing,
		} {
			c := growingIn(growth.KindRetained, "[heap: free but resident]").freeing(1)
			for i, s := range c.Snapshots {
				kept := int64(share * mebibytes(s.Elapsed.Seconds()))
				c.Snapshots[i].Holdings[0].ResidentBytes -= kept
				s.Holdings = append(s.Holdings, growth.Holding{
					Stack: &growth.Stack{ID: 1, PID: judgedPID}, Kind: growth.KindHeap,
					InuseBytes: kept, ResidentBytes: kept,
				})
			}
			got := Process(c)
			if got.Reason != want || len(got.Diagnoses) != 2 ||
				got.Diagnoses[0].Cause != diagnosis.Fragmentation {
				t.Errorf("%g kept: %s (%s), %+v", share, got.Class, got.Reason, got.Diagnoses)
			}
		}
	})

	t.Run("pages of files are no leak", func(t *testing.T) {
		got := Process(growingIn(growth.KindFile, "[file: /data/train.bin]"))
		if got.Class != verdict.ClassPlateau || got.Reason != verdict.ReasonPageCache ||
			len(got.Diagnoses) != 1 || got.Diagnoses[0].Cause != diagnosis.PageCache ||
			!math.IsNaN(got.Level) {
			t.Errorf("%s (%s), %+v", got.Class, got.Reason, got.Diagnoses)
		}
	})

	// The rest grows as well: then the verdict is about the rest.
	t.Run("pages of files beside growth", func(t *testing.T) {
		c := growingIn(growth.KindFile, "[file: /data/train.bin]")
		for i := range c.Process.Timeline {
			c.Process.Timeline[i].Anonymous += int64(mebibytes(float64(i)) / 2)
		}
		if got := Process(c); got.Class != verdict.ClassGrowing {
			t.Errorf("%s (%s)", got.Class, got.Reason)
		}
	})

	t.Run("pages that were not scanned", func(t *testing.T) {
		if got := Process(watched(0, 300, mebibytes)); got.Diagnoses != nil {
			t.Errorf("%+v", got.Diagnoses)
		}
	})
}
