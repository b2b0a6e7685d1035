package growth

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

// A Mark is what a training program, or its user, says about a moment.
type Mark struct {
	// At is the time since the start of the trace; negative: before it.
	At time.Duration
	// Text is printable, in one line.
	Text string
}

// EpochsOf gives when the first pass over the data ended, nil if that is not known, and the period of epochs or of
// validations, the longer of them; 0 where there are no two marks of either.
//
// A mark whose first word is "epoch" in any case ("epoch", "Epoch 3", "epoch_end") says that a pass has ended. Where it also
// says "start" or "begin", a pass begins: that ends the one before. Such marks count only where no others of the kind are,
// and then from the second on, because nobody knows whether a pass went before the first.
//
// A mark whose first word is "val", "valid", "validate", "validation", "eval", "evaluate" or "evaluation" says that a
// validation has been; that it begins counts likewise.
func EpochsOf(marks []Mark) (end *time.Duration, cycle time.Duration) {
	epochs, began := timesOf(marks, "epoch")
	switch {
	case len(epochs) > 0 && !began:
		end = &epochs[0]
	case len(epochs) > 1:
		end = &epochs[1]
	}
	validations, _ := timesOf(marks, "val", "valid", "validate", "validation", "eval", "evaluate", "evaluation")
	return end, max(medianDistance(epochs), medianDistance(validations))
}

// timesOf gives, in order, the times of the marks with one of these first words: of those that say an end, or of those
// that say a beginning if there are no others.
func timesOf(marks []Mark, words ...string) (times []time.Duration, began bool) {
	var ends, beginnings []time.Duration
	for _, m := range marks {
		text := strings.ToLower(strings.TrimSpace(m.Text))
		rest := strings.TrimLeftFunc(text, unicode.IsLetter)
		switch {
		case !slices.Contains(words, strings.TrimSuffix(text, rest)):
		case strings.Contains(rest, "start") || strings.Contains(rest, "begin"):
			beginnings = append(beginnings, m.At)
		default:
			ends = append(ends, m.At)
		}
	}
	times, began = ends, false
	if len(ends) == 0 {
		times, began = beginnings, len(beginnings) > 0
	}
	slices.Sort(times)
	return times, began
}

// medianDistance of times that are sorted; 0 if there are fewer than two.
func medianDistance(times []time.Duration) time.Duration {
	if len(times) < 2 {
		return 0
	}
	distances := make([]time.Duration, len(times)-1)
	for i := range distances {
		distances[i] = times[i+1] - times[i]
	}
	slices.Sort(distances)
	return (distances[(len(distances)-1)/2] + distances[len(distances)/2]) / 2
}
