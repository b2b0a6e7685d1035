package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
)

func TestForceReplacesAnEarlierTraceAndLeavesOtherFilesAlone(t *testing.T) {
	target := startSteps(t)
	first, dir := tracing(t, target)
	do(target, "leak 10 100")
	first.interrupt()
	precious := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(precious, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := begin(t, allocscope(t, traceArguments(target.PID(), dir, "--force", "--debug")...))
	second.await("it has taken a snapshot", func() bool { return strings.Contains(second.stderr.String(), "debug: snapshot at ") })
	do(target, "leak 20 50")
	second.interrupt()
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(20, 50))
	if got := readFile(t, dir, "notes.txt"); got != "precious" {
		t.Errorf("notes.txt holds %q", got)
	}
}

func TestForceDoesNotTouchADirectoryThatIsNotOurs(t *testing.T) {
	folder := makeDir(t, newFolder(t))
	thesis := filepath.Join(folder, "growth.pb.gz") // even if the name is one of ours
	if err := os.WriteFile(thesis, []byte("precious"), 0o640); err != nil {
		t.Fatal(err)
	}
	before := describe(t, folder) + describe(t, thesis)
	c := call(t, traceArguments(startSteps(t).PID(), folder, "--force")...)
	c.mustEnd(1)
	mustSay(t, "stderr", c.stderr.String(), "error: create "+folder, "not from allocscope", "--output")
	if after := describe(t, folder) + describe(t, thesis); after != before || readFile(t, folder, "growth.pb.gz") != "precious" {
		t.Errorf("was %q, is %q", before, after)
	}
}

func TestForceDoesNotFollowALink(t *testing.T) {
	elsewhere, folder := makeDir(t, newFolder(t)), newFolder(t)
	makeLink(elsewhere)(t, folder)
	c := call(t, traceArguments(startSteps(t).PID(), folder, "--force")...)
	c.mustEnd(1)
	mustSay(t, "stderr", c.stderr.String(), "symbolic link", "not followed")
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
		t.Errorf("%d entries behind the link, %v", len(entries), err)
	}
}

func TestAFullDiskIsSaidWithTheFileAndTheTableIsStillPrinted(t *testing.T) {
	disk, target := mountTmpfs(t, 0), startSteps(t)
	folder := filepath.Join(disk, "out")
	c := begin(t, allocscope(t, traceArguments(target.PID(), folder, "--snapshot-every", "100ms", "--warmup", "100ms")...))
	c.awaitFile(folder, "snapshots/002.pb.gz")
	do(target, "leak 1000 1000")
	fill(t, disk)
	c.await("it notices", func() bool { return strings.Contains(c.stderr.String(), "error: ") })
	c.signal(syscall.SIGINT)
	c.mustEnd(1)
	mustSay(t, "stdout", c.stdout.String(), "leak_here", "977 KiB", "1000")
	mustSay(t, "stderr", c.stderr.String(), "error: write snapshots/", "no space left on device")
	mustSay(t, "the last line of stderr", lastLine(c.stderr.String()), "files could not be written")
	mustBeWhole(t, folder)
}

// fill takes all room that a file system has left.
func fill(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for page := make([]byte, 4096); err == nil; _, err = file.Write(page) {
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// mustBeWhole wants that each profile that is there is complete, and nothing else.
func mustBeWhole(t *testing.T, folder string) {
	t.Helper()
	for _, pattern := range []string{"*.pb.gz", "snapshots/*"} {
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			parseProfile(t, path)
		}
	}
	for _, pattern := range []string{".*.tmp", "snapshots/.*.tmp"} {
		if left, err := filepath.Glob(filepath.Join(folder, pattern)); err != nil || len(left) > 0 {
			t.Errorf("unfinished files %q, %v", left, err)
		}
	}
}

func TestADiskThatIsFullFromTheStartIsSaidAtOnceAndTheFolderCanBeUsedLater(t *testing.T) {
	disk, target := mountTmpfs(t, 0), startSteps(t)
	folder := filepath.Join(disk, "out")
	fill(t, disk)
	c := call(t, traceArguments(target.PID(), folder)...)
	c.mustEnd(1)
	mustSay(t, "stderr", lastLine(c.stderr.String()), "error: write timeline.csv", "no space left on device")
	if err := os.Remove(filepath.Join(disk, "fill")); err != nil {
		t.Fatal(err)
	}
	call(t, traceArguments(target.PID(), folder, "--force", "-d", "0.2")...).mustEnd(0)
	readSummary(t, folder)
}
