package main

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// rowsOfAKind are kept in the summary's ledger, for each process and kind.
const rowsOfAKind = 20

// account puts into the summary where the resident memory is at the ends of a span, and what that advises.
func (r *recorder) account(s *summary.Summary, span span) {
	rows := growth.Ledger(span.start, span.end)
	s.Breakdown = summary.BreakdownOf(rows, rowsOfAKind)
	s.Residents = summary.ResidentsOf(span.start.Residents, span.end.Residents)
	s.Advice = summary.AdviceOf(growth.Advise(growth.Evidence{
		Ledger: rows, Start: span.start.Residents, End: span.end.Residents,
		Owners: r.flags.owners.rules, CacheStart: r.cacheAt(span.start.Elapsed), CacheEnd: r.cacheAt(span.end.Elapsed),
	}))
}

// lookedAt moves the ends of a span to where the pages of a process were looked at: from before its first snapshot to the
// first, from after its death to the last of its life.
func (r *recorder) lookedAt(track *growth.Track, s span) span {
	pid := r.processOf(track).PID
	looked := func(s *growth.Snapshot) bool {
		return slices.ContainsFunc(s.Residents, func(p growth.Resident) bool { return p.PID == pid })
	}
	own := slices.DeleteFunc(r.snapshotsOf(track), func(s *growth.Snapshot) bool { return !looked(s) })
	if n := len(own); n > 0 {
		if !looked(s.start) {
			s.start = own[0]
		}
		if !looked(s.end) {
			s.end = own[n-1]
		}
	}
	return s
}

// cacheAt is the page cache of the container at the moment nearest to one; Unknown before the first row.
func (r *recorder) cacheAt(at time.Duration) int64 {
	cache, off := int64(growth.Unknown), time.Duration(-1)
	for _, row := range r.history.Rows {
		if distance := (row.Elapsed - at).Abs(); off < 0 || distance < off {
			cache, off = row.Around.CgroupCache, distance
		}
	}
	return cache
}
