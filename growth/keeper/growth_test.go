package keeper

import (
	"slices"
	"testing"
	"time"
)

func TestAddGrowth(t *testing.T) {
	cache := Root{Kind: RootGlobal, Module: "train", Name: "cache"}
	local := Root{Kind: RootLocal, Owner: "train", Name: "batch", Line: 10}
	moved := local
	moved.Line = 12

	dict := func(entries Entries) Link { return Link{How: HowVariable, Type: "dict", Entries: entries} }
	attribute := func(name string, entries Entries) Link {
		return Link{How: HowAttribute, Name: name, Type: "list", Entries: entries}
	}

	anyValue := Link{How: HowValue, Type: "list", Entries: 100}
	constant := Link{How: HowValue, Name: "'loss'", Type: "list", Entries: 100}

	for _, c := range []struct {
		name          string
		before, after Path
		want          []float64 // PerMinute of each link of after
	}{
		{
			"container grows",
			Path{Root: cache, Links: []Link{dict(100)}},
			Path{Root: cache, Links: []Link{dict(160), {How: HowValue, Type: "Image", Entries: -1}}},
			[]float64{30, 0},
		},
		{
			"container shrinks",
			Path{Root: cache, Links: []Link{dict(160)}},
			Path{Root: cache, Links: []Link{dict(100)}},
			[]float64{0},
		},
		{
			"other root",
			Path{Root: Root{Kind: RootGlobal, Module: "train", Name: "other"}, Links: []Link{dict(0)}},
			Path{Root: cache, Links: []Link{dict(100)}},
			[]float64{0},
		},
		{
			"function stands at another line",
			Path{Root: local, Links: []Link{dict(10)}},
			Path{Root: moved, Links: []Link{dict(14)}},
			[]float64{2},
		},
		{
			"attribute of the same name",
			Path{Root: cache, Links: []Link{{How: HowVariable, Type: "Run", Entries: -1}, attribute("history", 5)}},
			Path{Root: cache, Links: []Link{{How: HowVariable, Type: "Run", Entries: -1}, attribute("history", 9)}},
			[]float64{0, 2},
		},
		{
			"attribute of another name",
			Path{Root: cache, Links: []Link{{How: HowVariable, Type: "Run", Entries: -1}, attribute("losses", 5)}},
			Path{Root: cache, Links: []Link{{How: HowVariable, Type: "Run", Entries: -1}, attribute("history", 9)}},
			[]float64{0, 0},
		},
		{
			"entry that is not the same for all samples",
			Path{Root: cache, Links: []Link{dict(10), {How: HowValue, Type: "list", Entries: 1}, attribute("x", 1)}},
			Path{Root: cache, Links: []Link{dict(10), anyValue, attribute("x", 9)}},
			// Another list may be the value of another key.
			[]float64{0, 0, 0},
		},
		{
			"entry of one key",
			Path{Root: cache, Links: []Link{dict(10), {How: HowValue, Name: "'loss'", Type: "list", Entries: 40}}},
			Path{Root: cache, Links: []Link{dict(10), constant}},
			[]float64{0, 30},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := []Search{
				{
					PID:     2,
					Elapsed: time.Minute,
					Paths:   []Path{{Root: c.after.Root, Links: []Link{dict(1 << 40)}}},
				},
				{
					PID: 1, TracedSince: time.Second, Elapsed: time.Minute,
					Paths: []Path{{Root: c.after.Root, Links: []Link{dict(1 << 40)}}},
				},
				{PID: 1, Elapsed: time.Minute, Paths: []Path{c.before}},
			}
			after := []Search{{PID: 1, Elapsed: 3 * time.Minute, Paths: []Path{c.after}}}

			AddGrowth(before, after)
			for i, l := range after[0].Paths[0].Links {
				if l.PerMinute != c.want[i] {
					t.Errorf("link %d grows by %v a minute, want %v", i, l.PerMinute, c.want[i])
				}
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	found := []Path{{Samples: 8}}
	old := Search{PID: 1, Stack: 10, Paths: found, Elapsed: 1}
	for name, c := range map[string]struct {
		before, now Search
		want        []time.Duration // Elapsed of each
	}{
		"confirmed":       {old, Search{PID: 1, Stack: 10, Paths: found, Elapsed: 2}, []time.Duration{2}},
		"refuted":         {old, Search{PID: 1, Stack: 10, Reason: ReasonFreed, Elapsed: 2}, []time.Duration{2}},
		"by other stack":  {old, Search{PID: 1, Stack: 11, Reason: ReasonFreed, Elapsed: 2}, []time.Duration{2}},
		"no time":         {old, Search{PID: 1, Stack: 10, Reason: ReasonBudget, Elapsed: 2}, []time.Duration{1}},
		"some time":       {old, Search{PID: 1, Stack: 10, Paths: found, Reason: ReasonBudget, Elapsed: 2}, []time.Duration{2}},
		"other suspect":   {old, Search{PID: 1, Stack: 12, Elapsed: 2}, []time.Duration{2, 1}},
		"other process":   {old, Search{PID: 2, Stack: 10, Elapsed: 2}, []time.Duration{2, 1}},
		"another program": {old, Search{PID: 1, Stack: 10, TracedSince: 1, Elapsed: 2}, []time.Duration{2, 1}},
		"type": {
			Search{PID: 1, Type: "dict", Elapsed: 1},
			Search{PID: 1, Type: "list", Elapsed: 2},
			[]time.Duration{2, 1},
		},
	} {
		var got []time.Duration
		for _, s := range Update([]Search{c.before}, []Search{c.now}, [][]uint64{{11, 10}, {12}}) {
			got = append(got, s.Elapsed)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: answers of %v, want %v", name, got, c.want)
		}
	}
}

// Later searches are not compared with a search without a path.
func TestAddFirst(t *testing.T) {
	found := []Path{{Samples: 8}}
	var first []Search
	for i, s := range []Search{
		{Stack: 1},
		{Stack: 1, Paths: found},
		{Stack: 1, Paths: found},
		{Stack: 1, Paths: found, TracedSince: 1},
	} {
		s.Elapsed = time.Duration(i)
		first = AddFirst(first, []Search{s})
	}

	if len(first) != 2 || first[0].Elapsed != 1 || first[1].Elapsed != 3 {
		t.Errorf("%+v, want the first with a path of each program", first)
	}
}

// reading has so many entries, of which the first ones have been dropped.
func reading(address uint64, entries, dropped int64) Reading {
	l := Reading{Address: address, Entries: Entries(entries)}
	for _, place := range MarkPlaces(entries) {
		l.Marks = append(l.Marks, Mark{place, uint64(place+dropped) * 8})
	}
	return l
}

// mustGrow checks the growth of the first link of the first path.
func mustGrow(t *testing.T, name string, after []Search, want Link) {
	t.Helper()
	got := after[0].Paths[0].Links[0]
	if got.PerMinute != want.PerMinute || got.GrowthS != want.GrowthS ||
		got.Steady != want.Steady || got.AppendOnly != want.AppendOnly {
		t.Errorf("%s: %+v, want %+v", name, got, want)
	}
}

// TestReadings compares two readings at containers: the same ones by their addresses.
func TestReadings(t *testing.T) {
	path := func(readings ...Reading) Path {
		return Path{Links: []Link{{How: HowItem, Type: "list", Entries: NoContainer, Readings: readings}}}
	}

	for name, c := range map[string]struct {
		before, after Path
		want          Link
	}{
		"appended": {
			path(reading(1, 100, 0)), path(reading(1, 300, 0)),
			Link{PerMinute: 100, GrowthS: 120, AppendOnly: true},
		},
		"a queue":    {path(reading(1, 100, 0)), path(reading(1, 300, 50)), Link{PerMinute: 100, GrowthS: 120}},
		"few of old": {path(reading(1, 20, 0)), path(reading(1, 220, 0)), Link{PerMinute: 100, GrowthS: 120}},
		"as many":    {path(reading(1, 100, 0)), path(reading(1, 100, 9)), Link{GrowthS: 120, Steady: true}},
		"fewer":      {path(reading(1, 100, 0)), path(reading(1, 60, 0)), Link{GrowthS: 120, Steady: true}},
		"another":    {path(reading(1, 100, 0)), path(reading(2, 300, 0)), Link{}},
		"several": {
			path(reading(1, 100, 0), reading(2, 100, 0)), path(reading(2, 150, 0), reading(1, 150, 0)),
			Link{PerMinute: 50, GrowthS: 120, AppendOnly: true},
		},
		"one is new": {path(reading(1, 100, 0)), path(reading(1, 150, 0), reading(2, 10, 0)), Link{}},
	} {
		before := []Search{{PID: 1, Elapsed: time.Minute, Paths: []Path{c.before}}}
		after := []Search{{PID: 1, Elapsed: 3 * time.Minute, Paths: []Path{c.after}}}
		AddGrowth(before, after)
		mustGrow(t, name, after, c.want)
	}
}

// TestAddEarlier takes the readings of an earlier trace into account.
func TestAddEarlier(t *testing.T) {
	of := func(entries, dropped int64) []Reading { return []Reading{reading(1, entries, dropped)} }
	for name, c := range map[string]struct {
		now  Link // by the searches of this trace
		want Link
	}{
		"read once": {
			Link{Readings: of(300, 0)}, Link{PerMinute: 100, GrowthS: 120, AppendOnly: true},
		},
		"read twice within a second": {
			Link{Readings: of(300, 0), PerMinute: 60, GrowthS: 1, AppendOnly: true},
			Link{PerMinute: 100, GrowthS: 120, AppendOnly: true},
		},
		"no entry came within a second": {
			Link{Readings: of(300, 0), GrowthS: 1, Steady: true},
			Link{PerMinute: 100, GrowthS: 120, AppendOnly: true},
		},
		"it has stopped": {
			Link{Readings: of(300, 0), GrowthS: 30, Steady: true}, Link{GrowthS: 30, Steady: true},
		},
		"it has lost entries in this trace": {
			Link{Readings: of(300, 0), PerMinute: 60, GrowthS: 30}, Link{PerMinute: 60, GrowthS: 30},
		},
		"it has lost entries since": {
			Link{Readings: of(300, 50), PerMinute: 60, GrowthS: 30, AppendOnly: true},
			Link{PerMinute: 60, GrowthS: 30, AppendOnly: true},
		},
	} {
		path := func(l Link) []Path {
			l.How, l.Type, l.Entries = HowItem, "list", NoContainer
			return []Path{{Links: []Link{l}}}
		}
		earlier := []Search{{PID: 1, Elapsed: time.Minute, Paths: path(Link{Readings: of(100, 0)})}}
		after := []Search{{
			PID: 1, TracedSince: 2 * time.Minute, Elapsed: 3 * time.Minute, Paths: path(c.now),
		}}
		AddEarlier(earlier, after)
		mustGrow(t, name, after, c.want)
	}
}

// TestGrowingLink takes the first container that grows, and none that grows by the way.
func TestGrowingLink(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  int
	}{
		{[]float64{0, 0}, -1}, {[]float64{0, 400, 0}, 1}, {[]float64{20, 400}, 0}, {[]float64{0.5, 400}, 1},
	} {
		var p Path
		for _, rate := range c.rates {
			p.Links = append(p.Links, Link{PerMinute: rate})
		}
		if got := p.GrowingLink(); got != c.want {
			t.Errorf("%v: %d, want %d", c.rates, got, c.want)
		}
	}
}

// TestJoinPaths joins the ways within a container that grows, and no others.
func TestJoinPaths(t *testing.T) {
	cache := Root{Kind: RootGlobal, Module: "_ctypes", Name: "_pointer_type_cache"}
	grows := Link{How: HowVariable, Type: "dict", Entries: 160, PerMinute: 30}
	still := Link{How: HowVariable, Type: "dict", Entries: 160}
	value := Link{How: HowValue, Type: "PyCStructType", Entries: NoContainer}
	key := Link{How: HowKey, Type: "PyCStructType", Entries: NoContainer}
	item := Link{How: HowItem, Type: "list", Entries: 9, PerMinute: 30}
	path := func(samples int, links ...Link) Path {
		return Path{Root: cache, Samples: samples, Links: links}
	}
	other := path(3, grows)
	other.Root.Name = "other"

	for name, c := range map[string]struct {
		paths   []Path
		samples []int
		links   int // of the first
	}{
		"one container":        {[]Path{path(6, grows, value), path(4, grows, key)}, []int{10}, 1},
		"a part of the way":    {[]Path{path(6, grows, value, item), path(4, grows, value)}, []int{10}, 2},
		"a variable between":   {[]Path{path(4, grows), other, path(3, grows)}, []int{7, 3}, 1},
		"the joined is larger": {[]Path{other, path(2, grows), path(2, grows)}, []int{4, 3}, 1},
		"it does not grow":     {[]Path{path(6, still, value), path(4, still, key)}, []int{6, 4}, 2},
		"any list of a dict":   {[]Path{path(6, still, item), path(4, still, item, value)}, []int{6, 4}, 2},
	} {
		s := Search{Paths: c.paths}
		s.joinPaths()

		var samples []int
		for _, p := range s.Paths {
			samples = append(samples, p.Samples)
		}
		if !slices.Equal(samples, c.samples) || len(s.Paths[0].Links) != c.links {
			t.Errorf("%s: %+v, want samples %d", name, s.Paths, c.samples)
		}
	}
}
