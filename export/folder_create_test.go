package export

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// occupied is a directory with everything in it that can be in the way of a folder.
func occupied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put(t, "mine", dir, "file")
	put(t, "mine", dir, "foreign", "notes.txt")
	put(t, "{\"schema\": \"other\"}", dir, "other", SummaryFile)
	do(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	do(t, os.Symlink("empty", filepath.Join(dir, "link")))
	do(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	do(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	return dir
}

func TestCreateFolderErrors(t *testing.T) {
	dir := occupied(t)
	before := tree(t, dir)
	for _, test := range []struct {
		path  string
		force bool
		want  string
	}{
		{"empty", false, ": exists (choose another with --output, or replace it with --force)"},
		{"foreign", false, ": exists (choose"},
		{"foreign", true, ": exists and holds files that are not from allocscope (choose another with --output)"},
		{"other", true, ": exists and holds files that are not from allocscope"},
		{"file", false, ": exists and is not a directory (choose another with --output)"},
		{"file", true, ": exists and is not a directory"},
		{"fifo", true, ": exists and is not a directory"},
		{"link", false, ": it is a symbolic link, which is not followed"},
		{"link", true, ": it is a symbolic link, which is not followed"},
		{"link/", true, ": it is a symbolic link, which is not followed"},
		{"dangling", false, ": it is a symbolic link, which is not followed"},
		{"dangling", true, ": it is a symbolic link, which is not followed"},
		{"missing/out", true, ": there is no directory " + dir + "/missing (make it first)"},
		{"file/out", true, ": open " + dir + "/file: not a directory"},
		{"fifo/out", true, ": open " + dir + "/fifo: not a directory"},
	} {
		path := dir + "/" + test.path
		_, err := CreateFolder(path, current(), test.force)
		wantError(t, err, "create "+path+test.want)
	}
	if after := tree(t, dir); after != before {
		t.Errorf("held %s, holds %s", before, after)
	}
	if content(t, dir, "foreign", "notes.txt") != "mine" || content(t, dir, "file") != "mine" {
		t.Error("files of others have changed")
	}
}

func TestCreateFolderOddPaths(t *testing.T) {
	_, err := CreateFolder("", current(), true)
	wantError(t, err, "its name is empty")
	_, err = CreateFolder("/", current(), true)
	wantError(t, err, "create /: ")
}

// A parent may be reached through a link: /home often is one.
func TestCreateFolderUnderLinkedParent(t *testing.T) {
	dir := t.TempDir()
	do(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	do(t, os.Symlink("real", filepath.Join(dir, "link")))
	newFolder(t, filepath.Join(dir, "link", "out"), current(), false)
	if got := tree(t, dir); got != "link real/ real/out/" {
		t.Errorf("holds %s", got)
	}
}

func TestForceEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	do(t, os.Mkdir(path, 0o755))
	fill(t, newFolder(t, path, current(), true))
	info, err := os.Stat(path)
	do(t, err)
	if info.Mode().Perm() != dirMode {
		t.Errorf("mode %v, want %v", info.Mode(), dirMode)
	}
}

// Ours are removed, finished or not; nothing else is.
func TestForceReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	first := newFolder(t, path, current(), false)
	fill(t, first)
	do(t, first.WriteFile(ReportFile, writes("report")))
	put(t, "half", path, temporaryName(SummaryFile))
	put(t, "half", path, snapshotDir, temporaryName("004.pb.gz"))
	put(t, "mine", path, "notes.txt")
	put(t, "mine", path, "summary.json.tmp")
	put(t, "mine", path, ".growth.pb.gz")
	put(t, "mine", path, snapshotDir, "mine.pb.gz")
	newFolder(t, path, current(), true)
	if got, want := tree(t, path), ".growth.pb.gz notes.txt snapshots/ snapshots/mine.pb.gz summary.json.tmp"; got != want {
		t.Errorf("holds %s, want %s", got, want)
	}
}

// A folder is known by its summary alone, too, and what remains of it is nothing.
func TestForceKnowsSummary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	first := newFolder(t, path, current(), false)
	s := summary()
	do(t, first.WriteFile(SummaryFile, s.Write))
	do(t, first.WriteFile(SnapshotFile(1), writes("one")))
	newFolder(t, path, current(), true)
	if got := tree(t, path); got != "" {
		t.Errorf("holds %s, want nothing", got)
	}
}

func TestForceRefusesOtherOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: gives files away")
	}
	path := filepath.Join(t.TempDir(), "out")
	do(t, os.Mkdir(path, 0o755))
	_, err := CreateFolder(path, Owner{65534, 65534}, true)
	wantError(t, err, "exists and belongs to UID 0, not to UID 65534 (choose another with --output)")
	do(t, os.Chown(path, 65534, 65534))
	newFolder(t, path, Owner{65534, 65534}, true)
}

func TestForceRefusesPlantedFiles(t *testing.T) {
	for _, name := range []string{GrowthFile, snapshotDir, SnapshotFile(1)} {
		dir := t.TempDir()
		victim := put(t, "victim", dir, "victim", "001.pb.gz")
		path := filepath.Join(dir, "out")
		put(t, "time_s,rss_bytes,", path, TimelineFile)
		planted := filepath.Join(path, name)
		do(t, os.MkdirAll(filepath.Dir(planted), 0o755))
		do(t, os.Symlink(filepath.Dir(victim), planted))
		_, err := CreateFolder(path, current(), true)
		wantError(t, err, "create "+path+": ", filepath.Base(planted))
		if content(t, victim) != "victim" {
			t.Errorf("%s: the victim has changed", name)
		}
	}
}
