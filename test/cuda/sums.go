package main

import (
	"fmt"

	"github.com/allocscope/allocscope/export/summary"
)

// compareSums compares the summary with the figures of PyTorch while the program held still, and with
// the memory that empty_cache() returned then.
func (c example) compareSums(r *result, s *summary.Summary, held, emptied figures) {
	if len(s.GPUMemory) != 1 || s.GPUMemory[0].Cache == nil {
		r.add("the summary has no cache of PyTorch")
		return
	}

	g := &s.GPUMemory[0]
	if c.diagnosis != "" && g.Diagnosis != c.diagnosis {
		r.add(fmt.Sprintf("the diagnosis is %s, not %s", g.Diagnosis, c.diagnosis))
	}

	equal := func(what string, got, want int64) {
		if got != want {
			r.add(fmt.Sprintf("%s: %d, in torch %d", what, got, want))
		}
	}
	common, private := g.Cache.Default(), g.Cache.Private()
	allocated := common.AllocatedBytes + private.AllocatedBytes
	equal("reserved", common.ReservedBytes+private.ReservedBytes, held["reserved"])
	equal("allocated", allocated, held["allocated"])
	equal("pending", common.PendingBytes+private.PendingBytes, held["active"]-held["allocated"])
	equal("returnable", common.ReturnableBytes,
		held["reserved"]-emptied["reserved"])
	if held["segments"] != 0 { // expandable segments are not counted
		equal("segments", int64(common.Segments+private.Segments), held["segments"])
	}
	if held["active"] == held["allocated"] { // the request for a freed block counts while it is pending
		equal("rounding", common.RoundingBytes+private.RoundingBytes,
			held["allocated"]-held["requested"])
	}

	if len(g.Cache.Counts) != 1 {
		r.add(fmt.Sprintf("there are counts of %d GPUs", len(g.Cache.Counts)))
		return
	}
	counts := g.Cache.Counts[0]
	equal("peak allocated", counts.PeakAllocatedBytes, held["peak_allocated"])
	equal("peak reserved", counts.PeakReservedBytes, held["peak_reserved"])
	equal("retries", counts.Retries, held["retries"])
	equal("OOMs", counts.OOMs, held["ooms"])
}
