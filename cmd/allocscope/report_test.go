package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// summaryFolder is what a trace without profiles has left, for one that only reads it.
func summaryFolder(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a trace")
	dir, err := folder.Create(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s := summary.Summary{
		Started: time.Unix(0, 0), DurationS: 60, Process: summary.Process{PID: 42, Command: "job"},
		Verdict: summary.VerdictOf(growth.Verdict{Class: growth.ClassTooShort, Why: "too short"}, summary.AxisSeconds),
	}
	if err := dir.WriteFile(folder.SummaryFile, s.Write); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReportWritesThePageIntoTheFolderAndPrintsItsPath(t *testing.T) {
	dir := summaryFolder(t)
	for range 2 { // the second takes the place of the first
		c := call(t, "report", dir)
		c.mustEnd(0)
		if want := filepath.Join(dir, "report.html") + "\n"; c.stdout.String() != want {
			t.Errorf("says %q, want %q", c.stdout.String(), want)
		}
		mustSay(t, "the report", readFile(t, dir, folder.ReportFile), "<!doctype html>", "TOO SHORT", "PID 42", "read timeline.csv: no such file")
	}
}

func TestAReportBelongsToTheUserBehindSudo(t *testing.T) {
	folder := summaryFolder(t)
	elsewhere := filepath.Join(t.TempDir(), "page.html")
	for path, arguments := range map[string][]string{filepath.Join(folder, "report.html"): {"report", folder}, elsewhere: {"report", "-o", elsewhere, folder}} {
		cmd := allocscope(t, arguments...)
		cmd.Env = append(cmd.Env, "SUDO_UID=65534", "SUDO_GID=65533")
		begin(t, cmd).mustEnd(0)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); info.Mode() != 0o600 || owner.Uid != 65534 || owner.Gid != 65533 {
			t.Errorf("%s: mode %s, UID %d, GID %d", path, info.Mode(), owner.Uid, owner.Gid)
		}
	}
}

func TestReportSaysWhatIsWrongWithAFolder(t *testing.T) {
	file, foreign, killed, damaged := filepath.Join(t.TempDir(), "file"), t.TempDir(), summaryFolder(t), summaryFolder(t)
	put := func(path, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(file, "")
	if err := os.Rename(filepath.Join(killed, folder.SummaryFile), filepath.Join(foreign, "other.json")); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(killed, folder.TimelineFile), "time_s,rss_bytes,")
	put(filepath.Join(damaged, folder.SummaryFile), readFile(t, damaged, folder.SummaryFile)[:100])
	for path, want := range map[string]string{
		"/nowhere": "open /nowhere: there is no such folder", file: "not a directory", foreign: "it holds no summary.json and no timeline.csv of allocscope",
		killed: "the trace still runs, or was killed before its end", damaged: "read summary.json: it is cut short",
	} {
		c := call(t, "report", path)
		c.mustEnd(1)
		mustSay(t, "stderr", c.stderr.String(), want)
		if exists(filepath.Join(path, folder.ReportFile)) {
			t.Errorf("%s: there is a report", want)
		}
	}
}

// checkReport wants the page of the trace, and that the same is made of its files later.
func checkReport(t *testing.T, h *happyTrace) {
	page := readFile(t, h.folder, folder.ReportFile)
	mustSay(t, "the report", page, "leak_here", "PID "+itoa(h.target.PID()), "RSS at the end, as the kernel counts")
	if strings.Contains(page, "could be read") {
		t.Error("the report lacks a file")
	}
	call(t, "report", h.folder).mustEnd(0)
	if again := readFile(t, h.folder, folder.ReportFile); again != page {
		t.Errorf("`allocscope report` makes another page of %d bytes, not %d", len(again), len(page))
	}
}
