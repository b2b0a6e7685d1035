package census

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Windows has the counts of one census by type and window. A window is a part of the memory of
// small objects. A census reads it if the number that its address draws is less than the share. All
// censuses of a program draw the same numbers: a census reads all windows that one of a smaller
// share reads.
type Windows struct {
	share   float64
	numbers []uint32 // of all windows that there were, in order
	isRead  []bool   // by their index
	types   map[string]*windowedType
	counts  int // of all types
}

// A WindowCount has the objects of one type in one window that was read.
type WindowCount struct {
	Window       uint32
	Count, Bytes float32
}

// A windowedType has the objects of one type.
type windowedType struct {
	counts            []WindowCount // in the order of their windows, one of each
	exact, exactBytes float64       // outside of windows
	isPartial         bool          // see LeaveOut
}

// NewWindows returns the windows of a census that reads a share of them, without counts. All
// windows that there are have numbers, and isRead reports which of them are read.
func NewWindows(share float64, numbers []uint32, isRead func(uint32) bool) *Windows {
	w := &Windows{share: share, numbers: numbers, types: make(map[string]*windowedType)}
	slices.Sort(w.numbers)
	w.numbers = slices.Compact(w.numbers)

	w.isRead = make([]bool, len(w.numbers))
	for i, number := range w.numbers {
		w.isRead[i] = isRead(number)
	}

	return w
}

// Add adds counts of a type by window, and counts outside of windows. Several types of a process
// may have one name: their counts are added up.
func (w *Windows) Add(name string, counts []WindowCount, exact, exactBytes float64) {
	t := w.typeNamed(name)
	t.exact += exact
	t.exactBytes += exactBytes

	all := slices.Concat(t.counts, counts)
	slices.SortFunc(all, func(a, b WindowCount) int { return cmp.Compare(a.Window, b.Window) })

	w.counts -= len(t.counts)
	t.counts = all[:0]
	for _, c := range all {
		if last := len(t.counts) - 1; last >= 0 && t.counts[last].Window == c.Window {
			t.counts[last].Count += c.Count
			t.counts[last].Bytes += c.Bytes
		} else {
			t.counts = append(t.counts, c)
		}
	}
	w.counts += len(t.counts)
}

// LeaveOut notes that a type was counted beside the windows that were read, too: its growth by
// window is not known.
func (w *Windows) LeaveOut(name string) { w.typeNamed(name).isPartial = true }

func (w *Windows) typeNamed(name string) *windowedType {
	t := w.types[name]
	if t == nil {
		t = &windowedType{}
		w.types[name] = t
	}
	return t
}

// Bytes of memory that windows take, about.
const (
	bytesOfNumber = 5
	bytesOfCount  = 12
	bytesOfType   = 128
)

// size returns the bytes of memory that the windows take, about.
func (w *Windows) size() int {
	return bytesOfNumber*len(w.numbers) + bytesOfCount*w.counts + bytesOfType*len(w.types)
}

// A Difference is how many more objects of one type a census has than an earlier one, by the
// windows that both have read.
type Difference struct {
	Type         string
	Count, Bytes float64
	// Margin is half the width of the 95% confidence interval of Count; 0: exact.
	Margin float64
}

// zScore95 is the half-width of a 95% interval of a normal distribution, in standard deviations.
const zScore95 = 1.959964

// differences returns the differences of all types between two censuses of a program, the
// difference estimator of cluster sampling. With d as the difference in a window, and p as the
// probability that both censuses know it, the estimate is Σd/p, and its variance Σd²·(1−p)/p²
// (Horvitz and Thompson). A window in which nothing has changed adds no error.
//
// p is the smaller share where the window was there at both times. A window that is new had no
// object before, and one that has gone has none any more: there, p is the share of the census that
// has it.
func (w *Windows) differences(before *Windows) (all []Difference) {
	names := maps.Clone(before.types)
	maps.Copy(names, w.types)
	none, chances := &windowedType{}, w.chances(before)
	for name := range names {
		was, now := cmp.Or(before.types[name], none), cmp.Or(w.types[name], none)
		if was.isPartial || now.isPartial {
			continue
		}

		d := Difference{
			Type: name, Count: now.exact - was.exact, Bytes: now.exactBytes - was.exactBytes,
		}

		variance, most := 0.0, 0.0
		for was, now := range pairs(was.counts, now.counts) {
			p, isKnown := chances[max(was.Window, now.Window)]
			if !isKnown {
				continue
			}

			more := float64(now.Count) - float64(was.Count)
			d.Count += more / p
			d.Bytes += (float64(now.Bytes) - float64(was.Bytes)) / p
			variance += more * more * (1 - p) / (p * p)
			most = max(most, float64(was.Count), float64(now.Count))
		}

		// A few windows that were not read may have lost all of their objects, while the others
		// have gained. So the interval is wider by windows that are as full as the fullest one,
		// half before the root and half in it, as in the score interval (Wilson).
		unread := most * missed(min(before.share, w.share)) / 2
		d.Margin = unread + math.Hypot(zScore95*math.Sqrt(variance), unread)
		all = append(all, d)
	}

	return all
}

// missed returns the number of windows of which a census of a share reads none with a probability
// of 2.5%, at least one.
func missed(share float64) float64 {
	const probability = 0.025
	if share >= 1 {
		return 0
	}
	return max(1, math.Log(probability)/math.Log(1-share))
}

// chances returns the probability, by window, that both censuses know how many objects it has. The
// windows that one of them has not read are left out.
func (w *Windows) chances(before *Windows) map[uint32]float64 {
	chances := make(map[uint32]float64)
	for i, number := range w.numbers {
		if w.isRead[i] {
			chances[number] = w.share
		}
	}
	for i, number := range before.numbers {
		_, isThere := slices.BinarySearch(w.numbers, number)
		_, isRead := chances[number]

		switch {
		case !before.isRead[i]:
			delete(chances, number)
		case isRead:
			chances[number] = min(before.share, w.share)
		case !isThere:
			chances[number] = before.share
		}
	}

	return chances
}

// pairs yields the counts in each window of one list or of both. Where one has none, its count is
// 0.
func pairs(was, now []WindowCount) func(yield func(was, now WindowCount) bool) {
	return func(yield func(was, now WindowCount) bool) {
		for len(was) > 0 || len(now) > 0 {
			var a, b WindowCount
			takeWas := len(now) == 0 || len(was) > 0 && was[0].Window <= now[0].Window
			takeNow := len(was) == 0 || len(now) > 0 && now[0].Window <= was[0].Window

			if takeWas {
				a, was = was[0], was[1:]
			}
			if takeNow {
				b, now = now[0], now[1:]
			}

			if !yield(a, b) {
				return
			}
		}
	}
}

// A History keeps the windows of the censuses of a program, within bounds of memory. The zero value
// is ready to use.
type History struct{ kept []keptWindows }

// keptWindows are the windows of one census.
type keptWindows struct {
	id      uint64
	at      time.Time
	windows *Windows
}

const (
	maxHistoryBytes = 16 << 20
	maxHistory      = 64
	// MaxWindowCounts is how many counts a census keeps at most: two censuses have room.
	MaxWindowCounts = maxHistoryBytes / 2 / bytesOfCount
)

// Paired returns the types that grew since each census of the history, by its ID. Where both have
// read everything, their counts are exact, and there are none.
func (h *History) Paired(w *Windows) map[uint64][]Difference {
	paired := make(map[uint64][]Difference)
	for _, k := range h.kept {
		if k.windows.share >= 1 && w.share >= 1 {
			continue
		}

		grown := []Difference{}
		for _, d := range w.differences(k.windows) {
			if d.Count-d.Margin > 0 {
				grown = append(grown, d)
			}
		}
		paired[k.id] = grown
	}

	return paired
}

// Add adds the windows of a census that was made at some time. Where there is no room for all, the
// first and the last stay, and the times of the others since the first grow by equal factors: one
// of them is near the baseline, wherever it is.
func (h *History) Add(id uint64, at time.Time, w *Windows) {
	if w.size() > maxHistoryBytes/2 {
		return
	}

	h.kept = append(h.kept, keptWindows{id, at, w})
	for h.size() > maxHistoryBytes || len(h.kept) > maxHistory {
		first := h.kept[0].at
		nearest, least := 1, math.Inf(1)
		for i := 1; i < len(h.kept)-1; i++ {
			factor := h.kept[i+1].at.Sub(first).Seconds() / h.kept[i-1].at.Sub(first).Seconds()
			if factor < least {
				nearest, least = i, factor
			}
		}

		h.kept = slices.Delete(h.kept, nearest, nearest+1)
	}
}

func (h *History) size() (bytes int) {
	for _, k := range h.kept {
		bytes += k.windows.size()
	}
	return bytes
}
