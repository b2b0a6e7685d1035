package main

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// rowsOfAKind are kept in the summary's ledger, for each process and kind.
const rowsOfAKind = 20

// account puts into the summary where the resident memory is, and what that advises.
func (r *recorder) account(s *export.Summary, span span) {
	span = r.lookedAt(s.Process.PID, span)
	rows := growth.Ledger(span.start, span.end)
	s.Ledger = export.LedgerOf(rows, rowsOfAKind)
	s.Residents = export.ResidentsOf(span.start.Residents, span.end.Residents)
	s.Advice = export.AdviceOf(growth.Advise(growth.Evidence{
		Ledger: rows, Start: span.start.Residents, End: span.end.Residents,
		Owners: r.flags.owners.rules, CacheStart: r.cacheAt(span.start.Elapsed), CacheEnd: r.cacheAt(span.end.Elapsed),
	}))
}

// lookedAt moves the ends of a span to where the pages of a process were looked at: from before its first snapshot to the
// first, from after its death to the last of its life.
func (r *recorder) lookedAt(pid int, s span) span {
	looked := func(s *growth.Snapshot) bool {
		return slices.ContainsFunc(s.Residents, func(p growth.Resident) bool { return p.PID == pid })
	}
	for _, snapshot := range r.snapshots {
		if looked(snapshot.Snapshot) && !looked(s.start) {
			s.start = snapshot.Snapshot
		}
	}
	for _, snapshot := range slices.Backward(r.snapshots) {
		if looked(snapshot.Snapshot) && !looked(s.end) {
			s.end = snapshot.Snapshot
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
