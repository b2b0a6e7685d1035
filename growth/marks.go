package growth

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

// A Mark is a note of a training program, or its user, about a moment.
type Mark struct {
	// At is the time since the start of the trace; negative for a moment before it.
	At time.Duration
	// Text is printable, in one line.
	Text string
}

// EpochsOf returns when the first pass over the data ended, nil if unknown, and the period of
// epochs or of validations, the longer of them; 0 without two marks of either.
//
// A mark whose first word is "epoch" in any case ("epoch", "Epoch 3", "epoch_end") means that a
// pass has ended. With "start" or "begin" in it, it means that a pass begins, which ends the one
// before. Such marks count only without marks of an end, and from the second on: the first may have
// no pass before it.
//
// A mark whose first word is "val", "valid", "validate", "validation", "eval", "evaluate" or
// "evaluation" means that a validation has ended or begun.
func EpochsOf(marks []Mark) (end *time.Duration, cycle time.Duration) {
	epochs, areBeginnings := timesOf(marks, "epoch")
	switch {
	case len(epochs) > 0 && !areBeginnings:
		end = &epochs[0]
	case len(epochs) > 1:
		end = &epochs[1]
	}

	validations, _ := timesOf(marks,
		"val", "valid", "validate", "validation", "eval", "evaluate", "evaluation")

	return end, max(medianDistance(epochs), medianDistance(validations))
}

// timesOf returns, in order, the times of the marks with one of these first words: of marks of an
// end, or of marks of a beginning if there are no others.
func timesOf(marks []Mark, words ...string) (times []time.Duration, areBeginnings bool) {
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

	times = ends
	if len(ends) == 0 {
		times, areBeginnings = beginnings, len(beginnings) > 0
	}
	slices.Sort(times)

	return times, areBeginnings
}

// medianDistance between sorted times; 0 for fewer than two.
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
