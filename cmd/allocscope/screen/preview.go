package screen

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/chart"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

const firstJudgement = 10 * time.Second // elapsed when a trace is judged first

// preview judges a trace that has not ended, for the screen. The verdict at the end and the alarm
// do not depend on it.
type preview struct {
	recorder *record.Recorder
	rechecks *verdict.Rechecks
	limiter  duty.Limiter // of judgements and comparisons
	judged   conclude.Process
	judgedAt time.Duration // when the first judgement is due, before it
	verdict  *summary.Verdict
	suspect  string
	// diagnosis is the largest part of the growth.
	diagnosis string
	gpu       gpuPreview

	latest   *growth.Snapshot // of the comparison
	compared comparison
	objects  countedObjects
}

// countedObjects is how objects grew between two censuses.
type countedObjects struct {
	before, after *census.Result
	grown         *summary.Objects // nil: unknown
}

// comparison is the growth from the baseline to the latest snapshot.
type comparison struct {
	since     time.Duration
	warm      bool
	stacks    []Stack
	gpuStacks []Stack
	breakdown words.Breakdown
	resident  summary.Resident
}

func newPreview(r *record.Recorder) *preview {
	first := time.Duration(float64(firstJudgement) / r.Options().Speed)
	return &preview{
		recorder: r, judgedAt: r.Began() + first,
		rechecks: verdict.NewRechecks(verdict.Criteria{MinPlateauLength: first.Seconds()}),
	}
}

// isAllowed reports whether there is CPU time to judge or to compare.
func (p *preview) isAllowed() bool {
	p.limiter.Share = p.recorder.OwnUse().Share(duty.Screen)
	return p.limiter.Allowed(time.Now())
}

// judge judges the main process where that is due.
func (p *preview) judge() {
	main := p.recorder.History().Main()
	if main == nil || !p.isAllowed() {
		return
	}

	elapsed := p.recorder.Elapsed()
	if !p.rechecks.Due((elapsed - p.recorder.Began()).Seconds()) {
		return
	}

	start := time.Now()

	t := p.recorder.Recorded()
	p.judged, p.judgedAt = t.JudgeProcess(main), elapsed
	t.JudgeGPU(&p.judged)
	t.AddChecks(&p.judged)

	v := summary.VerdictOf(p.judged.Verdict, summary.AxisSeconds)
	p.verdict, p.suspect, p.diagnosis = &v, words.MostBy(p.judged.Suspects), ""
	if len(p.judged.Diagnoses) > 0 {
		p.diagnosis = words.Diagnosis(summary.DiagnosesOf(main.PID, p.judged.Diagnoses)[0])
	}
	if j := p.judged.GPU; j != nil {
		p.gpu.set(j)
	}

	p.latest = nil
	p.limiter.Spend(time.Since(start))
}

// compare compares the latest snapshot with the baseline, unless it has done so.
func (p *preview) compare() {
	latest := p.recorder.Latest()
	if latest == nil || latest == p.latest || !p.isAllowed() {
		return
	}

	start := time.Now()
	p.latest = latest

	process := p.judged.History
	if process == nil {
		process = p.recorder.History().Main()
	}

	t := p.recorder.Recorded()
	pair := t.PairOf(process, p.judged.Window)
	scanned := t.ScannedPair(process, pair)
	pid, rules := p.recorder.ProcessOf(process).PID, t.Components

	gpuPair := conclude.Pair{
		Start: gpuHoldings(pair.Start, pid),
		End:   gpuHoldings(pair.End, pid),
	}
	rows := summary.BreakdownOf(breakdown.RSS(scanned.Start, scanned.End), record.MaxRowsPerKind,
		scanned.End.Losses)
	p.compared = comparison{
		since: pair.Start.Elapsed, warm: isWarm(p.judged),
		stacks: stacksOf(pair, rules), gpuStacks: stacksOf(gpuPair, rules),
		breakdown: words.BreakdownOf(rows, pid),
		resident: (&summary.Summary{
			Process:   summary.Process{PID: pid},
			Residents: summary.ResidentsOf(scanned.Start.Residents, scanned.End.Residents),
		}).MainResident(),
	}

	p.limiter.Spend(time.Since(start))
}

// count compares the latest census with the census of the baseline, unless it has done so.
func (p *preview) count() {
	main := p.recorder.History().Main()
	before, after := census.Around(p.recorder.Recorded().CensusesOf(main), p.compared.since)
	if o := p.objects; before != o.before || after != o.after {
		p.objects = countedObjects{before, after, summary.ObjectsOf(before, after)}
	}
}

// keeper is who keeps the memory of the first suspect; nil: unknown.
func (p *preview) keeper() *summary.Keeper {
	if len(p.judged.Suspects) == 0 {
		return nil
	}
	t := p.recorder.Recorded()
	found := summary.KeepersOf(t.KeepersOf(t.History.Main()))
	suspect := summary.SuspectOf(p.judged.Suspects[0])
	return summary.KeeperOf(found, &suspect)
}

// isWarm reports whether the baseline is the end of a warm-up that was seen.
func isWarm(v conclude.Process) bool { return v.From > 0 && v.Window.From > 0 }

// gpuPreview is the judgement of GPU memory until the trace ends. The zero value is before the
// first one.
type gpuPreview struct {
	verdict         *summary.Verdict
	advice, suspect string
}

func (g *gpuPreview) set(j *gpu.Judgement) {
	memory := summary.GPUJudged(j, 1)
	*g = gpuPreview{
		verdict: &memory.Verdict, advice: words.GPUAdvice(&memory), suspect: words.MostBy(j.Suspects),
	}
}

// gpuMeasures are sizes on GPUs, in the order of GPU.measures: the most complete one first.
var gpuMeasures = []func(*growth.Sample) int64{
	func(s *growth.Sample) int64 { return s.GPUUsed },
	func(s *growth.Sample) int64 { return s.CudaReserved },
	func(s *growth.Sample) int64 { return s.CudaDriver },
	func(s *growth.Sample) int64 { return s.CudaAllocated },
}

// maxFailedSamples is how many samples in a row may lack a measure before it counts as unknown.
const maxFailedSamples = 10

// latestKnown returns the latest known value of a measure, of the last maxFailedSamples.
func latestKnown(t growth.Timeline, measure func(*growth.Sample) int64) int64 {
	for i := range min(maxFailedSamples, len(t)) {
		if value := measure(&t[len(t)-1-i]); value != growth.Unknown {
			return value
		}
	}
	return growth.Unknown
}

// gpuCurve is the curve of the GPU memory of a process.
type gpuCurve struct {
	process *growth.ProcessHistory
	measure int // index in gpuMeasures
	curve   chart.Curve
}

// follow adds the latest size to the curve, which starts again with another process or another
// measure.
func (c *gpuCurve) follow(process *growth.ProcessHistory) {
	measure := slices.IndexFunc(gpuMeasures, func(measure func(*growth.Sample) int64) bool {
		return latestKnown(process.Timeline, measure) != growth.Unknown
	})

	from := len(process.Timeline) - 1
	if process != c.process || measure != c.measure {
		*c, from = gpuCurve{process: process, measure: measure}, 0
	}

	if measure < 0 {
		return
	}

	for i := range process.Timeline[from:] {
		s := &process.Timeline[from+i]
		if bytes := gpuMeasures[measure](s); bytes != growth.Unknown {
			c.curve = c.curve.With(s.Elapsed, bytes)
		}
	}
}

// gpu returns the screen's part on the GPU memory of a process; nil: it has had none.
func (d *display) gpu(process *growth.ProcessHistory) *GPU {
	d.gpuCurve.follow(process)
	if d.gpuCurve.curve.Max <= 0 {
		return nil
	}

	p, timeline, gpus := d.preview, process.Timeline, d.recorder.History().GPUs
	return &GPU{
		Used:      latestKnown(timeline, gpuMeasures[used]),
		Reserved:  latestKnown(timeline, gpuMeasures[reserved]),
		DriverAPI: latestKnown(timeline, gpuMeasures[driverAPI]),
		Allocated: latestKnown(timeline, gpuMeasures[allocated]),
		Total:     gpuTotal(gpus, process.PID), Headroom: growth.GPUHeadroom(gpus, process.PID),
		Curve: d.gpuCurve.curve, Verdict: p.gpu.verdict, Diagnosis: p.gpu.advice,
		Suspect: p.gpu.suspect, Stacks: p.compared.gpuStacks,
	}
}

// gpuTotal is the size of the GPU that a process uses; Unknown where it uses several, of which the
// first to fill sets the headroom.
func gpuTotal(gpus []growth.GPUSample, pid int) int64 {
	if own := growth.GPUsOf(gpus, pid); len(own) == 1 {
		return own[0].Total
	}
	return growth.Unknown
}

// gpuHoldings returns a snapshot whose holdings are a process's on GPUs.
func gpuHoldings(s *growth.Snapshot, pid int) *growth.Snapshot {
	own := *s
	own.Holdings = nil
	for _, h := range s.GPUHoldings {
		if h.Stack.PID == pid && h.Stack.Root == "" {
			h.InuseBytes = h.GPUBytes // 0 for a segment, whose blocks are counted
			own.Holdings = append(own.Holdings, h)
		}
	}
	return &own
}

// maxStacksPerOrder is how many stacks a State has for each order in which the screen sorts them.
const maxStacksPerOrder = 40

// stackGain is the growth and the size of stacks that read alike.
type stackGain struct {
	stack   *growth.Stack
	kind    growth.Kind
	text    []string
	gained  int64 // bytes
	alive   int64 // bytes
	objects float64
}

// gains sums holdings whose stacks read alike.
type gains struct {
	all    []stackGain
	byText map[string]int
	byID   map[growth.Key]int
}

func (g *gains) of(h *growth.Holding) *stackGain {
	i, ok := g.byID[h.Key()]
	if !ok {
		text := profile.StackText(h.Stack)
		reading := string(h.Kind) + "\n" + strings.Join(text, "\n")
		if i, ok = g.byText[reading]; !ok {
			i = len(g.all)
			g.byText[reading] = i
			g.all = append(g.all, stackGain{stack: h.Stack, kind: h.Kind, text: text})
		}
		g.byID[h.Key()] = i
	}
	return &g.all[i]
}

// stacksOf returns the stacks that come first in any order of the screen.
func stacksOf(pair conclude.Pair, rules *component.Rules) []Stack {
	g := gains{byText: make(map[string]int), byID: make(map[growth.Key]int)}
	for i := range pair.End.Holdings {
		if h := &pair.End.Holdings[i]; h.InuseBytes != 0 {
			gain := g.of(h)
			gain.gained += h.InuseBytes
			gain.alive += h.InuseBytes
			gain.objects += h.InuseObjects
		}
	}

	for i := range pair.Start.Holdings {
		if h := &pair.Start.Holdings[i]; h.InuseBytes != 0 {
			g.of(h).gained -= h.InuseBytes
		}
	}

	var stacks []Stack
	for _, i := range g.largest() {
		gain := &g.all[i]
		at := gain.accumulation()
		stacks = append(stacks, Stack{
			Component:   rules.Of(gain.stack),
			Where:       []string{words.Where(at), words.WhereShort(at), words.WhereBrief(at)},
			BytesPerMin: summary.BytesPerMin(gain.gained, pair.Elapsed()),
			Bytes:       gain.alive, Objects: gain.objects,
		})
	}

	return stacks
}

// largest returns the indices of those that are among the first by growth, bytes or objects.
func (g *gains) largest() []int {
	orders := []func(a, b *stackGain) int{
		func(a, b *stackGain) int { return cmp.Compare(b.gained, a.gained) },
		func(a, b *stackGain) int { return cmp.Compare(b.alive, a.alive) },
		func(a, b *stackGain) int { return cmp.Compare(b.objects, a.objects) },
	}

	indices := make([]int, len(g.all))
	for i := range indices {
		indices[i] = i
	}

	var chosen []int
	for _, order := range orders {
		slices.SortFunc(indices, func(a, b int) int {
			return cmp.Or(order(&g.all[a], &g.all[b]), cmp.Compare(a, b))
		})
		chosen = append(chosen, indices[:min(maxStacksPerOrder, len(indices))]...)
	}

	slices.Sort(chosen)
	return slices.Compact(chosen)
}

// accumulation is the form of which package words makes a text.
func (g *stackGain) accumulation() summary.Accumulation {
	a := summary.Accumulation{Kind: g.kind, Function: g.text[0], Stack: g.text}
	if frames := growth.WithoutAllocator(g.stack.Frames); len(frames) > 0 {
		a.Function = frames[0].Function
		if frames[0].Module != nil {
			a.Module = frames[0].Module.Path
		}
	}
	return a
}
