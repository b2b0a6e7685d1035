package conclude

import (
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// rankAt is a rank that grows by so many MiB a minute, known to 1%, at a line of train.py; 0: at
// none.
func rankAt(rank int, rate float64, line int) Process {
	const perSecond = (1 << 20) / 60.
	v := Process{
		History: &growth.ProcessHistory{Member: growth.Member{Process: growth.Process{
			PID: 100 + rank, Role: growth.RoleRank, Rank: rank,
		}}},
		Judgement: judge.Judgement{Verdict: verdict.Verdict{
			Class: verdict.ClassGrowing, Rate: rate * perSecond,
			RateLow: 0.98 * rate * perSecond, RateHigh: 1.02 * rate * perSecond,
		}},
	}
	if line > 0 {
		v.Suspects = []trend.Suspect{{
			Frame: growth.Frame{Function: "train_step", File: "/train.py", Line: line},
			Lines: []trend.LineShare{{Line: line, Share: 1}},
		}}
	}
	return v
}

func TestOutlierOf(t *testing.T) {
	others := func(rates ...float64) (all []Process) {
		for i, rate := range rates {
			all = append(all, rankAt(i, rate, 10))
		}
		return all
	}
	steady := rankAt(9, 60, 10)
	steady.Class = verdict.ClassPlateau
	loader := rankAt(9, 60, 10)
	loader.History.Role = growth.RoleLoaderWorker

	for name, c := range map[string]struct {
		all   []Process
		ratio float64 // 0: no outlier, -1: the rate of the others does not count as growth
		site  Site
	}{
		"same call site":       {append(others(10, 10.1, 9.9, 10, 10.2), rankAt(9, 60, 10)), 6, SiteSame},
		"another call site":    {append(others(10, 10.1, 9.9, 10, 10.2), rankAt(9, 60, 11)), 6, SiteOnlyThere},
		"unknown call site":    {append(others(10, 10.1, 9.9, 10, 10.2), rankAt(9, 60, 0)), 6, ""},
		"others hardly grow":   {append(others(0.01, 0.02, -0.01, 0, 0), rankAt(9, 60, 11)), -1, SiteOnlyThere},
		"two ranks":            {append(others(10), rankAt(9, 60, 10)), 0, ""},
		"alike":                {append(others(10, 11, 9, 10, 12), rankAt(9, 13, 10)), 0, ""},
		"verdict is no growth": {append(others(10, 10.1, 9.9, 10, 10.2), steady), 0, ""},
		"no rank":              {append(others(10, 10.1, 9.9, 10, 10.2), loader), 0, ""},
	} {
		o := outlierOf(c.all)
		switch {
		case c.ratio == 0 && o == nil:
		case c.ratio == 0 || o == nil:
			t.Errorf("%s: %+v", name, o)
		case o.Rank.History.Rank != 9 || o.Ranks != 6 || o.Site != c.site:
			t.Errorf("%s: %+v", name, o)
		default:
			ratio, ok := o.Ratio()
			if ok != (c.ratio > 0) || ok && int(ratio+0.1) != int(c.ratio) {
				t.Errorf("%s: %v times the others, %v", name, ratio, ok)
			}
		}
	}
}

// Ranks that stand out are not among the ranks with which the first of them is compared.
func TestOutlierOfTwo(t *testing.T) {
	var all []Process
	for i, rate := range []float64{10, 10.1, 60, 9.9, 10, 62, 10.2, 9.8, 10} {
		line := 10
		if rate > 50 {
			line = 11
		}
		all = append(all, rankAt(i, rate, line))
	}

	o := outlierOf(all)
	if o == nil || o.Rank.History.Rank != 5 || o.Ranks != 9 || o.Others != 7 ||
		math.Round(o.Middle.Rate*60) != 10<<20 || o.Site != SiteOnlyThere {
		t.Errorf("%+v", o)
	}
}
