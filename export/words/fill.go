package words

import (
	"math"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/verdict"
)

// fillTexts name the memory that fills up, by its code.
var fillTexts = map[verdict.BoundOf]string{
	verdict.BoundMemory:    "it fills memory of a known size, touched now for the first time",
	verdict.BoundContainer: "it fills a cache or queue with a maximum, read in the process",
}

// FillText is the end of growth that ends by itself: "at most 1.2 GiB more, in about 12 min". It is
// empty where no end is known.
func FillText(v summary.Verdict) string {
	if v.Fill == nil {
		return ""
	}

	if v.Fill.LeftBytes == 0 {
		return "it is full, and flat since"
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

// fillLines are the proof of growth that ends by itself, its gap, and the time that decides.
func fillLines(v summary.Verdict) []string {
	f := v.Fill
	if f == nil {
		return []string{"its end is known"}
	}

	text := fillTexts[f.Of]
	if f.MeetsLimit {
		text += ", but the limit is met before it is full" + inParentheses(FillText(v))
		return []string{text}
	}
	text += ": it ends near " + units.Bytes(f.LevelBytes)
	if f.LeftBytes == 0 {
		text = fillTexts[f.Of] + ": it is full"
	}
	if f.In == nil {
		return []string{text}
	}

	another := "whether another one is made then"
	if f.Of == verdict.BoundContainer {
		another = "whether its entries become larger"
	}
	after := units.Span(inMinutes(*f.In+flatSeconds), v.InSteps(), math.Ceil)
	return []string{text, "not known: " + another + "; decided by " + after +
		" more: flat then, or it is a leak"}
}

// flatSeconds is how long RSS has to be flat, to see that it was full.
const flatSeconds = 3 * 60
