package export

import (
	"math"

	"github.com/allocscope/allocscope/growth"
)

// A TreeProcess is a process of the traced tree.
type TreeProcess struct {
	PID    int `json:"pid"`
	Parent int `json:"parent"`
	// Role is one of growth.Role…; Rank is the number of a rank.
	Role    growth.Role `json:"role"`
	Rank    *int        `json:"rank,omitempty"`
	Command string      `json:"command"`
	// Traced: with all sources. The others are on the timeline alone.
	Traced bool `json:"traced"`
	// FirstS and LastS are when it was seen first and last.
	FirstS float64 `json:"first_s"`
	LastS  float64 `json:"last_s"`
	// StartBytes and EndBytes are its resident memory then.
	StartBytes *int64 `json:"start_bytes,omitempty"`
	EndBytes   *int64 `json:"end_bytes,omitempty"`
	// Verdict of its resident memory; absent if it was not traced.
	Verdict growth.Class `json:"verdict,omitempty"`
}

// A Group is the workers of one role at the end of the trace.
type Group struct {
	Role      growth.Role `json:"role"`
	Processes int         `json:"processes"`
	// EachBytes is the median of their resident memory, shared pages counted for each.
	EachBytes *int64 `json:"rss_each_bytes,omitempty"`
	// PrivateBytes is what no other process shares, PSSBytes also their part of what is shared: of all of them together.
	PrivateBytes *int64 `json:"private_bytes,omitempty"`
	PSSBytes     *int64 `json:"pss_bytes,omitempty"`
	// Verdict of PrivateBytes over the trace, and its rate.
	Verdict         growth.Class `json:"verdict,omitempty"`
	RateBytesPerMin *float64     `json:"rate_bytes_per_min,omitempty"`
}

// A Limit is what ends the growth.
type Limit struct {
	// Of is "cgroup" or "machine".
	Of string `json:"of"`
	// RoomBytes is what can still be taken at the end of the trace.
	RoomBytes int64 `json:"room_bytes"`
}

// Steps of training.
type Steps struct {
	Count  int64   `json:"count"`
	PerMin float64 `json:"per_min"`
	// GrowthBytesPerStep is the verdict's rate by step; absent where either is not known.
	GrowthBytesPerStep *int64 `json:"growth_bytes_per_step,omitempty"`
}

// A Mark is a moment that the program or its user has named.
type Mark struct {
	AtS  float64 `json:"at_s"`
	Text string  `json:"text"`
}

// A Culprit is the deepest code that explains most of what one owner accumulates.
type Culprit struct {
	// Owner of the memory: a Python package or a library.
	Owner string `json:"owner"`
	// Function where all its stacks meet, as StackText writes it.
	Function string `json:"function"`
	// Bytes gained since the boundary by all stacks of the owner, and how fast.
	Bytes       int64 `json:"bytes"`
	BytesPerMin int64 `json:"bytes_per_min"`
	// Share of the resident growth; absent where nothing resident grew.
	Share *float64 `json:"share,omitempty"`
	// Explains is the part of Bytes whose stacks lead through Function; Stacks is the number of different ones of the owner.
	Explains float64      `json:"explains"`
	Stacks   int          `json:"stacks"`
	Trend    growth.Trend `json:"trend"`
	// Path leads from Function to the allocation that holds most, Callers from it outwards.
	Path    []string `json:"path"`
	Callers []string `json:"callers"`
}

// CulpritOf is a culprit in the form of the summary.
func CulpritOf(c growth.Culprit) Culprit {
	out := Culprit{
		Owner: c.Owner, Function: frameText(c.Frame), Bytes: nearest(c.Growth), BytesPerMin: nearest(c.Rate * 60),
		Explains: c.Inclusive, Stacks: c.Stacks, Trend: c.Trend, Path: frameTexts(c.Path), Callers: frameTexts(c.Above),
	}
	if !math.IsNaN(c.Share) {
		out.Share = &c.Share
	}
	return out
}

func frameTexts(frames []growth.Frame) []string {
	texts := []string{}
	for _, f := range frames {
		texts = append(texts, frameText(f))
	}
	return texts
}

// Known is a pointer to a value; nil where it is growth.Unknown.
func Known(value int64) *int64 {
	if value == growth.Unknown {
		return nil
	}
	return &value
}
