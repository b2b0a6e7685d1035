package growth

import (
	"slices"
	"testing"
	"time"
)

// at makes marks of one text, at these seconds.
func at(text string, seconds ...float64) (marks []Mark) {
	for _, s := range seconds {
		marks = append(marks, Mark{time.Duration(s * float64(time.Second)), text})
	}
	return marks
}

func together(parts ...[]Mark) (marks []Mark) {
	for _, p := range parts {
		marks = append(marks, p...)
	}
	return marks
}

const unsaid = -1e9 // seconds, where a case expects no end of the first pass

func TestEpochsOf(t *testing.T) {
	for name, c := range map[string]struct {
		marks      []Mark
		end, cycle float64 // seconds
	}{
		"none":                        {nil, unsaid, 0},
		"others":                      {together(at("checkpoint", 5, 9), at("value", 1, 2), at("", 3, 4)), unsaid, 0},
		"one":                         {at("epoch", 7), 7, 0},
		"two":                         {at("epoch", 7, 19), 7, 12},
		"three, one late":             {at("epoch", 10, 20, 90), 10, 40},
		"four, the middle one counts": {at("epoch", 10, 20, 30, 130), 10, 10},
		"a long one between others":   {at("epoch", 10, 20, 110, 120), 10, 10},
		"not in order":                {at("epoch", 30, 10, 20), 10, 10},
		"written in many ways":        {together(at("Epoch 1", 10), at("EPOCH_END", 20), at("epoch3", 30), at(" epoch: done", 40)), 10, 10},
		"other words that begin so":   {together(at("epochs: 90", 1), at("epochal", 2), at("last epoch", 3)), unsaid, 0},
		"starts and ends":             {together(at("epoch start", 0, 11, 22), at("epoch end", 10, 21, 32)), 10, 11},
		"starts alone":                {at("epoch 2 begins", 5, 25, 45), 25, 20},
		"a single start":              {at("epoch start", 5), unsaid, 0},
		"starts, and one end":         {together(at("epoch start", 0, 10, 20), at("epoch", 9)), 9, 0},
		"before the trace":            {at("epoch", -5, 10), -5, 15},
		"validations alone":           {at("validation", 10, 30, 50), unsaid, 20},
		"validations are longer":      {together(at("epoch", 10, 20), at("eval step", 0, 35)), 10, 35},
		"epochs are longer":           {together(at("epoch", 10, 70), at("Val 1", 10, 20, 30)), 10, 60},
		"validation start and end":    {together(at("validation start", 0, 100, 200), at("validation end", 5, 105, 205)), unsaid, 100},
		"all at once":                 {at("epoch", 3, 3, 3), 3, 0},
	} {
		before := slices.Clone(c.marks)
		end, cycle := EpochsOf(c.marks)
		got := unsaid
		if end != nil {
			got = end.Seconds()
		}
		if got != c.end || cycle.Seconds() != c.cycle {
			t.Errorf("%s: end %v, cycle %v; want %v, %v (seconds)", name, got, cycle.Seconds(),
				c.end, c.cycle)
		}
		if end != nil {
			*end = 0
		}
		if !slices.Equal(c.marks, before) {
			t.Errorf("%s: the marks have become %v", name, c.marks)
		}
	}
}
