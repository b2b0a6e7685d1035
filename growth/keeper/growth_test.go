package keeper

import (
	"testing"
	"time"
)

func TestAddGrowth(t *testing.T) {
	cache := Root{Kind: RootGlobal, Module: "train", Name: "cache"}
	local := Root{Kind: RootLocal, Owner: "train", Name: "batch", Line: 10}
	moved := local
	moved.Line = 12
	dict := func(entries int64) Link { return Link{How: HowVariable, Type: "dict", Entries: entries} }
	attribute := func(name string, entries int64) Link {
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
			"container shrinks", Path{Root: cache, Links: []Link{dict(160)}},
			Path{Root: cache, Links: []Link{dict(100)}},
			[]float64{0},
		},
		{
			"other root", Path{Root: Root{Kind: RootGlobal, Module: "train", Name: "other"}, Links: []Link{dict(0)}},
			Path{Root: cache, Links: []Link{dict(100)}},
			[]float64{0},
		},
		{
			"function stands at another line", Path{Root: local, Links: []Link{dict(10)}},
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
				{PID: 2, Elapsed: time.Minute, Paths: []Path{{Root: c.after.Root, Links: []Link{dict(1 << 40)}}}},
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
