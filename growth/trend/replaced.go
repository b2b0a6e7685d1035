package trend

import (
	"math"

	"github.com/allocscope/allocscope/growth"
)

const (
	// minSizes is the number of snapshots that must show the size of a stack's objects: by chance,
	// one of 720 stacks with objects of varying sizes shows six that rise.
	minSizes = 6
	// maxReplaced is the number of objects up to which a stack replaces them.
	maxReplaced = 16
	// maxSizeFall of the rise of the size is not a fall, and maxOldShare of the memory at the end may
	// be older than the window.
	maxSizeFall = 0.1
	maxOldShare = 0.1
)

// objectSizes follow the mean size of a stack's objects, in bytes, over the snapshots that have
// any.
type objectSizes struct {
	seen int
	// first, last and middle, which is the last one up to the middle of the window; the deepest
	// fall.
	first, middle, last, peak, fall float64
	// fewest and most objects at once. A copy of an object lives beside it for a moment.
	fewest, most float64
}

// add adds the objects of a snapshot.
func (o *objectSizes) add(h *growth.Holding, bytes int64, isAfterMiddle bool) {
	if h.InuseObjects < 0.5 || bytes <= 0 {
		return // freed, and not yet allocated again
	}

	size := float64(bytes) / h.InuseObjects
	if o.seen == 0 {
		o.first, o.middle, o.fewest = size, size, h.InuseObjects
	}

	o.seen++
	o.last, o.peak = size, max(o.peak, size)
	o.fall = max(o.fall, o.peak-size)
	o.fewest, o.most = min(o.fewest, h.InuseObjects), max(o.most, h.InuseObjects)
	if !isAfterMiddle {
		o.middle = size
	}
}

// objects is how many there are, without copies.
func (o *objectSizes) objects() float64 { return max(1, math.Round(o.fewest)) }

// bytes of all objects at the end, without copies.
func (o *objectSizes) bytes() float64 { return o.objects() * o.last }

// isReplaced is true of a stack whose objects, one or a few, are replaced by larger ones: torch.cat
// in a loop, a bytearray that is extended, the table of a dict. All objects at the end are young, so
// that their births look like the births of transient memory.
func (h *stackSeries) isReplaced(c *stackChange) bool {
	o := &h.sizes
	isOld := c.freed.Bytes < (1-maxOldShare)*float64(h.start.InuseBytes) ||
		c.born.Bytes < (1-maxOldShare)*float64(h.end.InuseBytes)

	return h.kind.IsSampled() && h.evidence() == nil && len(h.end.Births) > 0 && !isOld &&
		o.seen >= minSizes && o.objects() <= maxReplaced && o.most < 2*o.objects()+1 &&
		o.last > o.first && o.fall <= maxSizeFall*(o.peak-o.first)
}

// replacedChange is the change of memory whose objects are replaced: by their sizes.
func (h *stackSeries) replacedChange() stackChange {
	o := &h.sizes
	bytes := func(size float64) int64 { return int64(math.Round(o.objects() * size)) }
	return exactChange(bytes(o.first), bytes(o.middle), bytes(o.last))
}

// Accumulates is true of memory that grows through the whole window, at a steady rate.
func (t *StackTrend) Accumulates() bool {
	return t.Trend == growth.TrendAccumulating || t.Trend == growth.TrendReplaced && t.isSteady
}
