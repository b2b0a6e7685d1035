package words

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/verdict"
)

// fillTexts name the memory that fills up, by its code.
var fillTexts = map[verdict.BoundOf]string{
	verdict.BoundMemory:    "memory of a known size is touched for the first time",
	verdict.BoundContainer: "a cache or queue with a maximum is filled",
}

// FillText is the end of growth that ends by itself: "at most 1.2 GiB more, in about 12 min". It is
// empty where no end is known.
func FillText(v summary.Verdict) string {
	if v.Fill == nil {
		return ""
	}

	text := "at most " + units.Bytes(v.Fill.LeftBytes) + " more"
	if when := fillTime(v); when != "" {
		text += ", " + when
	}
	return text
}

// fillTime is when memory of a known size is full: "in about 12 min", "in 11-14 min".
func fillTime(v summary.Verdict) string {
	f := v.Fill
	switch {
	case f.In == nil:
		return ""
	case f.InLow != nil && f.InHigh != nil && *f.InHigh < 1.5**f.InLow:
		return "in " + units.SpanRange(*f.InLow, *f.InHigh, v.InSteps())
	}
	return "in about " + units.Span(*f.In, v.InSteps(), math.Round)
}

// fillCertainty is the proof of growth that ends by itself.
func fillCertainty(v summary.Verdict) string {
	f := v.Fill
	if f == nil {
		return "its end is known"
	}

	text := fillTexts[f.Of]
	if f.MeetsLimit {
		return text + fmt.Sprintf(", but the limit is met before it is full (%s)", FillText(v))
	}
	return text + ": the growth ends when it is full, near " + units.Bytes(f.LevelBytes)
}
