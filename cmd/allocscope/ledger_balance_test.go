package main

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// account is what the rows of one process sum to, in bytes.
type account struct {
	start, end  int64
	unexplained int // rows of that kind
}

// mustBalance wants the rows of each process to sum to its RSS, as the kernel counts, to the byte, and those of the tree to no
// more than all of them together.
func mustBalance(t *testing.T, s *summary.Summary) {
	t.Helper()
	sums, all := accountsOf(t, s), account{}
	for _, r := range s.Residents {
		start, end := bytesOf(r.StartBytes), bytesOf(r.EndBytes)
		if sum := sums[r.Process]; sum != (account{start, end, 1}) {
			t.Errorf("the rows of PID %d sum to %+v, want %d, %d and one row unexplained", r.Process, sum, start, end)
		}
		all.start, all.end = all.start+start, all.end+end
		if r.Process == s.Process.PID {
			mustBeAt(t, "at the boundary", s.RSS.BaselineBytes, start)
			mustBeAt(t, "at the end", s.RSS.EndBytes, end)
		}
	}
	if tree := sums[0]; tree.start > all.start || tree.end > all.end {
		t.Errorf("the rows of the tree sum to %+v, more than those of its processes, %+v", tree, all)
	}
	for pid := range sums {
		if pid != 0 && !slices.ContainsFunc(s.Residents, func(r summary.Resident) bool { return r.Process == pid }) {
			t.Errorf("rows of PID %d, which is none of %+v", pid, s.Residents)
		}
	}
}

// accountsOf sums the rows of each process; the tree's are those of PID 0.
func accountsOf(t *testing.T, s *summary.Summary) map[int]account {
	t.Helper()
	sums := make(map[int]account)
	for _, row := range s.Breakdown {
		if row.DeltaBytes != row.EndBytes-row.StartBytes {
			t.Errorf("%+v does not add up", row)
		}
		if row.Kind == growth.KindSwapped {
			continue
		}
		sum := sums[row.Process]
		sum.start, sum.end = sum.start+row.StartBytes, sum.end+row.EndBytes
		if row.Kind == growth.KindUnexplained {
			sum.unexplained++
		}
		sums[row.Process] = sum
	}
	return sums
}

// bytesOf is a size of the summary; 0: there was nothing.
func bytesOf(size *int64) int64 {
	if size == nil {
		return 0
	}
	return *size
}

// mustBeAt wants the summary's RSS to be that of the ledger.
func mustBeAt(t *testing.T, when string, rss *int64, want int64) {
	t.Helper()
	if rss == nil || *rss != want {
		t.Errorf("RSS of %d bytes %s, in the ledger %d", bytesOf(rss), when, want)
	}
}

// checkLedger wants the kernel's numbers in the summary and, to the byte, in the profiles.
func checkLedger(t *testing.T, h *happyTrace) {
	s := readSummary(t, h.folder)
	if len(s.Residents) != 1 || !s.Residents[0].Traced || !s.Residents[0].HeapTraced {
		t.Errorf("residents %+v, want the target alone", s.Residents)
	}
	boundary, end := *s.RSS.BaselineBytes, *s.RSS.EndBytes
	for file, want := range map[string]int64{folder.WarmupFile: boundary, folder.PlateauFile: end, folder.GrowthFile: end - boundary} {
		if got := residentSpace(t, readProfile(t, h.folder, file), h.target.PID()); got != want {
			t.Errorf("resident_space of %s is %d, the summary's RSS %d", file, got, want)
		}
	}
	if end < h.rssAfter-rssSlack || end > h.rssAfter+rssSlack {
		t.Errorf("RSS of %d bytes at the end; the kernel said %d", end, h.rssAfter)
	}
}
