package conclude

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// checked is a process that grows, with a search among 16 samples of its memory.
func checked(found keeper.Search, judged judge.Judgement) Process {
	found.PID, found.Samples, found.Elapsed = 1, 16, time.Minute
	judged.Judged = verdict.Verdict{Class: verdict.ClassGrowing, Reason: verdict.ReasonStillGrowing}
	p := Process{
		History:   &growth.ProcessHistory{Member: growth.Member{Process: growth.Process{PID: 1}}},
		Judgement: judged,
	}
	trace := &Trace{History: &growth.History{}, Keepers: []keeper.Search{found}}
	trace.AddChecks(&p)
	return p
}

// TestKept raises growth to a suspicion where the premises of a container that only gains entries
// hold, to a leak where nothing reads them either, and nowhere else.
func TestKept(t *testing.T) {
	type premises struct {
		link    keeper.Link
		samples int // of 16, on the path
		stack   uint64
		share   float64 // of the call site
		tensors float64 // share of tensors
		typ     string  // of the samples; empty: they are of the stack
	}
	holds := premises{
		link:    keeper.Link{Type: "list", PerMinute: 600, GrowthS: 30, AppendOnly: true},
		samples: 12, stack: 7, share: 0.8,
	}
	ofTensors := func(p *premises, typ string, share float64) {
		p.stack, p.share, p.tensors, p.typ = 0, 0.1, share, typ
	}

	unread := func(change func(*premises)) func(*premises) {
		return func(p *premises) {
			p.link.WriteOnly, p.link.GrowthS, p.samples = true, 180, 13
			change(p)
		}
	}

	for name, c := range map[string]struct {
		change func(*premises)
		want   verdict.Class
	}{
		"all hold":       {func(*premises) {}, verdict.ClassSuspected},
		"it loses some":  {func(p *premises) { p.link.AppendOnly = false }, verdict.ClassGrowing},
		"too short":      {func(p *premises) { p.link.GrowthS = 10 }, verdict.ClassGrowing},
		"too few":        {func(p *premises) { p.link.PerMinute = 40 }, verdict.ClassGrowing},
		"few samples":    {func(p *premises) { p.samples = 7 }, verdict.ClassGrowing},
		"other memory":   {func(p *premises) { p.stack = 8 }, verdict.ClassGrowing},
		"little of it":   {func(p *premises) { p.share = 0.3 }, verdict.ClassGrowing},
		"nothing grows":  {func(p *premises) { p.link.PerMinute = 0 }, verdict.ClassGrowing},
		"another object": {func(p *premises) { p.link.GrowthS = 0 }, verdict.ClassGrowing},
		"tensors": {
			func(p *premises) { ofTensors(p, "torch.Tensor", 0.8) }, verdict.ClassSuspected,
		},
		"parameters": {
			func(p *premises) { ofTensors(p, "torch.nn.parameter.Parameter", 0.8) },
			verdict.ClassSuspected,
		},
		"few tensors": {
			func(p *premises) { ofTensors(p, "torch.Tensor", 0.3) }, verdict.ClassGrowing,
		},
		"functions beside tensors": {
			func(p *premises) { ofTensors(p, "function", 0.8) }, verdict.ClassGrowing,
		},

		"unread":             {unread(func(*premises) {}), verdict.ClassLeak},
		"it is read":         {unread(func(p *premises) { p.link.WriteOnly = false }), verdict.ClassSuspected},
		"unread, loses some": {unread(func(p *premises) { p.link.AppendOnly = false }), verdict.ClassGrowing},
		"unread, too short":  {unread(func(p *premises) { p.link.GrowthS = 110 }), verdict.ClassSuspected},
		"unread, few":        {unread(func(p *premises) { p.samples = 12 }), verdict.ClassSuspected},
		"unread, limited": {
			unread(func(p *premises) { p.link.Entries, p.link.Limit = 5, 5 }), verdict.ClassSuspected,
		},
	} {
		p := holds
		c.change(&p)
		process := checked(keeper.Search{
			Stack: p.stack, Type: p.typ,
			Paths: []keeper.Path{{Samples: p.samples, Links: []keeper.Link{p.link}}},
		}, judge.Judgement{
			Suspects:  []trend.Suspect{{Share: p.share, StackIDs: []uint64{6, 7}}},
			Diagnoses: []diagnosis.Diagnosis{{Cause: diagnosis.Tensors, Share: p.tensors}},
		})
		if process.Class != c.want {
			t.Errorf("%s: %s (%s), want %s", name, process.Class, process.Reason, c.want)
		}
	}
}

// TestGarbageFound names garbage as the growth where the collector's state says what it waits for.
func TestGarbageFound(t *testing.T) {
	for name, c := range map[string]struct {
		garbage int // of 16 samples
		waits   keeper.WaitFor
		want    verdict.Reason
	}{
		"waits for gc.enable()": {16, keeper.WaitEnable, verdict.ReasonGarbage},
		"waits for its turn":    {16, "", verdict.ReasonStillGrowing},
		"a part of it":          {8, keeper.WaitEnable, verdict.ReasonStillGrowing},
	} {
		p := checked(
			keeper.Search{Stack: 7, Garbage: c.garbage, Waits: keeper.Wait{For: c.waits}},
			judge.Judgement{Suspects: []trend.Suspect{{Share: 0.8, StackIDs: []uint64{7}}}},
		)
		if p.Class != verdict.ClassGrowing || p.Reason != c.want {
			t.Errorf("%s: %s (%s), want %s", name, p.Class, p.Reason, c.want)
		}
	}
}

// TestContainerLimit knows the end of growth that a container with a limit keeps.
func TestContainerLimit(t *testing.T) {
	full := keeper.Link{Type: "collections.deque", PerMinute: 600, GrowthS: 30, Entries: 4000, Limit: 10_000}
	met := full
	met.Entries = 10_000
	none := full
	none.Limit = 0

	const no = -1
	for name, c := range map[string]struct {
		link, within keeper.Link
		samples      int
		halves       float64 // how many times as fast the second half rose
		flat         int     // samples at the end, 5 s apart, that are equal
		want         float64 // bytes that are still to come; no: the end is not known
	}{
		"on its way":            {full, keeper.Link{}, 16, 1, 0, 6000 * 100},
		"met, and grows on":     {met, keeper.Link{}, 16, 1, 3, no},
		"met, and flat since":   {met, keeper.Link{}, 16, 1, 8, 0},
		"no limit":              {none, keeper.Link{}, 16, 1, 8, no},
		"some beside":           {full, keeper.Link{}, 12, 1, 0, no},
		"entries that grow":     {full, keeper.Link{PerMinute: 60}, 16, 1, 0, no},
		"entries become larger": {full, keeper.Link{}, 16, 1.5, 0, no},
	} {
		history := &growth.ProcessHistory{Member: growth.Member{Process: growth.Process{PID: 1}}}
		const samples, each = 20, 5 // seconds
		for i := range samples {
			sample := growth.UnknownSample()
			sample.Elapsed = time.Duration(i*each) * time.Second
			sample.RSS = 50<<20 + 1000*each*int64(min(i, samples-1-c.flat))
			history.Timeline = append(history.Timeline, sample)
		}
		trace := &Trace{History: &growth.History{}, Keepers: []keeper.Search{{
			PID: 1, Stack: 7, Samples: 16, Elapsed: time.Minute,
			Paths: []keeper.Path{{Samples: c.samples, Links: []keeper.Link{c.link, c.within}}},
		}}}
		p := Process{History: history, Judgement: judge.Judgement{
			Judged:   verdict.Verdict{Rate: 1000, Shape: verdict.Shape{Halves: c.halves}},
			Suspects: []trend.Suspect{{Share: 0.9, Rate: 1000, StackIDs: []uint64{7}}},
		}}
		trace.addKept(&p)
		got := float64(no)
		if b := p.Findings.Bound; b != nil {
			got = b.Left
		}
		if got != c.want {
			t.Errorf("%s: %.0f bytes are to come, want %.0f", name, got, c.want)
		}
	}
}
