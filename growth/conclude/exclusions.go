package conclude

import (
	"math"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/verdict"
)

// An Exclusion is another explanation that does not hold. Share is its part of the growth, and
// Count a number of processes.
type Exclusion struct {
	Code  ExclusionCode `json:"code"`
	Share float64       `json:"share,omitempty"`
	Count int64         `json:"count,omitempty"`
}

// An ExclusionCode is the code of an exclusion.
type ExclusionCode string

// The exclusions.
const (
	ExcludedFree     ExclusionCode = "fragmentation" // freed memory that malloc keeps
	ExcludedFiles    ExclusionCode = "page-cache"    // pages of mapped files
	ExcludedShared   ExclusionCode = "shared-memory" // /dev/shm, memfd, System V
	ExcludedGPU      ExclusionCode = "gpu-memory"    // GPU memory of the process
	ExcludedChildren ExclusionCode = "tree"          // Count other processes of the tree
)

// ExclusionCodes are all of them.
var ExclusionCodes = []ExclusionCode{
	ExcludedFree, ExcludedFiles, ExcludedShared, ExcludedGPU, ExcludedChildren,
}

const (
	// maxExcluded is the share of the growth up to which an explanation is excluded.
	maxExcluded = 0.05
	// maxUnexplained is the share of the growth by which the rows may fail to add up to it.
	maxUnexplained = 0.1
)

// excludedKinds are the kinds of memory whose growth would be another explanation.
var excludedKinds = []struct {
	kind growth.Kind
	code ExclusionCode
}{
	{growth.KindRetained, ExcludedFree},
	{growth.KindFile, ExcludedFiles},
	{growth.KindShmem, ExcludedShared},
}

// excluded are the explanations that were checked, and do not hold: kinds of memory where RSS
// grows, and other memory that does not grow beside it.
func (k *known) excluded(t *Trace) []Exclusion {
	r := k.result
	if r.Main.History == nil || k.Class == verdict.ClassTooShort {
		return nil
	}

	var all []Exclusion
	if k.Class.Rises() {
		all = k.excludedParts()
	}
	if gpu := r.Main.GPU; gpu != nil && isFlat(gpu.Class) {
		all = append(all, Exclusion{Code: ExcludedGPU})
	}
	if n := t.flatOthers(r); n > 0 {
		all = append(all, Exclusion{Code: ExcludedChildren, Count: n})
	}
	return all
}

// excludedParts are the kinds of memory that hold next to nothing of the growth. Free memory counts
// only where it is known.
func (k *known) excludedParts() (parts []Exclusion) {
	r, pid := k.result, k.result.Main.History.PID
	deltas := make(map[growth.Kind]int64)
	sum := int64(0)
	for _, row := range r.Rows {
		if row.PID == pid && row.Kind != growth.KindSwapped {
			deltas[row.Kind] += row.Delta()
			sum += row.Delta()
		}
	}
	unexplained := math.Abs(float64(deltas[growth.KindUnexplained]))
	if sum <= 0 || unexplained > maxUnexplained*float64(sum) {
		return nil
	}

	_, knowsFree := claim.May(claim.FreeMemory, pid, claim.Missing(r.Scanned.End))
	for _, e := range excludedKinds {
		share := float64(deltas[e.kind]) / float64(sum)
		if share <= maxExcluded && (knowsFree || e.kind != growth.KindRetained) {
			parts = append(parts, Exclusion{Code: e.code, Share: max(0, share)})
		}
	}
	return parts
}

// flatOthers is the number of other processes of the tree, where none of them grows; else 0.
func (t *Trace) flatOthers(r *Result) (n int64) {
	for _, g := range r.Groups {
		if !isFlat(g.Verdict.Class) {
			return 0
		}
		n += int64(g.Count)
	}

	for _, p := range t.History.Processes {
		if p == r.Main.History || len(p.Timeline) == 0 || p.Last < t.lastElapsed() {
			continue
		}
		start, end := p.Timeline.RSSAt(p.First), p.Timeline.RSSAt(p.Last)
		if start == growth.Unknown || end-start > max(minRise, int64(maxRise*float64(start))) {
			return 0
		}
		n++
	}
	return n
}

const (
	// A flat process rises by minRise at most, in bytes, or by maxRise of its level.
	minRise = 1 << 20
	maxRise = 0.01
)

// isFlat reports whether a class excludes growth.
func isFlat(c verdict.Class) bool {
	return c == verdict.ClassPlateau || c == verdict.ClassSpikyPlateau
}
