package census

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// A TypeGrowth is how the objects of one type changed between two censuses.
type TypeGrowth struct {
	Type string
	// Before and After are counts; Bytes is the difference in bytes.
	Before, After, Bytes float64
	// PerMinute is the growth of the count; Low and High bound it with 95% confidence, by the
	// sampling of pools alone.
	PerMinute, Low, High float64
}

// minGrowthPart is the part of the growth of the first type from which on another one is worth a
// line.
const minGrowthPart = 0.01

// minWindows is the number of windows from which on the counts in them show how much other windows
// differ. In fewer, a type may be by chance: most of its objects are in one that was not read.
const minWindows = 8

// Grown returns the types whose objects became more between two censuses of a process, those that
// grew by the most bytes first. The growth is by the windows that both have read, if these are
// known (Result.Paired); else the errors of both add up. A type is left out if its interval
// includes 0, if it was then counted in few windows, or if it grew by less than a hundredth of the
// first. There are none where one of the two was cut, or where only one has counted large objects.
func Grown(before, after *Result) []TypeGrowth {
	minutes := (after.Elapsed - before.Elapsed).Minutes()
	if minutes <= 0 || before.PID != after.PID || before.Missing != after.Missing ||
		before.Cut || after.Cut {
		return nil
	}

	old := make(map[string]TypeCount, len(before.Types))
	for _, t := range before.Types {
		old[t.Type] = t
	}
	paired, isPaired := after.Paired[before.ID]
	var grown []TypeGrowth
	for _, t := range after.Types {
		was := old[t.Type]
		g := TypeGrowth{
			Type: t.Type, Before: was.Count, After: t.Count, Bytes: t.Bytes - was.Bytes,
		}
		margin := 0.0
		switch isSampled := t.Windows > 0 || was.Windows > 0; {
		case isPaired && isSampled:
			// A type that is not among them has not grown.
			i := slices.IndexFunc(paired, func(d Difference) bool { return d.Type == t.Type })
			if i < 0 {
				continue
			}
			g.Bytes, margin = paired[i].Bytes, paired[i].Margin
			// The census of the larger share has the count that is nearer to the truth.
			if after.Share < before.Share {
				g.After = was.Count + paired[i].Count
			} else {
				g.Before = max(0, t.Count-paired[i].Count)
			}
			g.PerMinute = paired[i].Count / minutes
		case after.Share < 1 && t.Windows > 0 && t.Windows < minWindows:
			continue
		default:
			margin = math.Hypot(t.Margin, was.Margin) + unseen(before, after, was, t)
			g.PerMinute = (t.Count - was.Count) / minutes
		}

		g.Low, g.High = g.PerMinute-margin/minutes, g.PerMinute+margin/minutes
		if g.Low > 0 {
			grown = append(grown, g)
		}
	}

	slices.SortFunc(grown, func(a, b TypeGrowth) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type))
	})
	if len(grown) == 0 {
		return nil
	}
	least := minGrowthPart * grown[0].Bytes
	return slices.DeleteFunc(grown, func(t TypeGrowth) bool { return t.Bytes < least })
}

// Around returns the census that is nearest to a moment, of all but the last, and the last one;
// nil: there is none.
func Around(all []*Result, moment time.Duration) (before, after *Result) {
	for i, c := range all {
		if i == len(all)-1 {
			after = c
		} else if before == nil || (c.Elapsed-moment).Abs() < (before.Elapsed-moment).Abs() {
			before = c
		}
	}
	return before, after
}

// IsTensor reports whether a type is one of PyTorch's own types of tensors.
func IsTensor(name string) bool {
	return name == "torch.Tensor" || name == "torch.nn.parameter.Parameter"
}

// GrownStorages is by how many bytes the CPU storages of tensors grew between two of some censuses
// of a process. margin are the bytes that may be there by chance: the step that was under way had
// one more storage of each kind, or as much more as a census between the two is off their line. It
// returns false where one of the two does not know the storages.
func GrownStorages(all []*Result, before, after *Result) (bytes, margin float64, ok bool) {
	if before == nil || after == nil || before.Elapsed >= after.Elapsed {
		return 0, 0, false
	}
	first, one, isKnown := storagesOf(before)
	last, another, areKnown := storagesOf(after)
	if !isKnown || !areKnown {
		return 0, 0, false
	}

	bytes, margin = last-first, one+another
	for _, between := range all {
		held, _, ok := storagesOf(between)
		if !ok || between.Elapsed <= before.Elapsed || between.Elapsed >= after.Elapsed {
			continue
		}
		part := (between.Elapsed - before.Elapsed).Seconds() / (after.Elapsed - before.Elapsed).Seconds()
		margin = max(margin, math.Abs(held-first-part*bytes))
	}
	return bytes, margin, true
}

// storagesOf returns the bytes of the CPU storages that a census has found, and of one storage of
// each kind; false: they are not known.
func storagesOf(r *Result) (bytes, one float64, ok bool) {
	for _, g := range r.Tensors.Groups {
		if g.Device == "cpu" && g.Storages > 0 {
			bytes += float64(g.Bytes)
			one += float64(g.Bytes) / float64(g.Storages)
		}
	}
	return bytes, one, r.Tensors.Unknown == ""
}

// Nearest sorts types that grow by how near they are to a user: first the classes of the program
// itself, then classes of libraries, then the built-in types of CPython. Among types that are as
// near, the one that grew by the fewest objects comes first: the others are parts of it, such as
// the lines and texts of a figure.
func Nearest(grown []TypeGrowth) []TypeGrowth {
	distance := func(t TypeGrowth) int {
		module, _, isInModule := strings.Cut(t.Type, ".")
		switch {
		case module == "__main__":
			return 0
		case isInModule && !builtinModules[module]:
			return 1
		}
		return 2
	}
	sorted := slices.Clone(grown)
	slices.SortStableFunc(sorted, func(a, b TypeGrowth) int {
		da, db := distance(a), distance(b)
		if da != db || da == 2 { // of dicts and numbers, the ones with most bytes
			return cmp.Compare(da, db)
		}
		return cmp.Compare(a.PerMinute, b.PerMinute)
	})
	return sorted
}

// builtinModules have types that programs use as they use dict and list.
var builtinModules = map[string]bool{
	"collections": true, "functools": true, "_io": true, "weakref": true, "types": true,
	"_thread": true, "re": true, "itertools": true,
}

// unseen returns how many objects of a type the first census may have missed, beyond the interval,
// since it found them in few windows. If it found them in n, the number of all windows that have
// them, times the share, is at most n + minWindows, with 95% confidence (Poisson). Each has as many
// objects as those that were read.
func unseen(before, after *Result, was, now TypeCount) float64 {
	if before.Share <= 0 || before.Share >= 1 || was.Windows >= minWindows {
		return 0
	}
	perWindow := 0.0
	switch {
	case now.Windows > 0:
		perWindow = now.Count * after.Share / float64(now.Windows)
	case was.Windows > 0:
		perWindow = was.Count * before.Share / float64(was.Windows)
	}
	return minWindows * perWindow / before.Share
}
