package export

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func writes(content string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}
}

func newFolder(t *testing.T, path string, owner Owner, force bool) *Folder {
	t.Helper()
	f, err := CreateFolder(path, owner, force)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func put(t *testing.T, text string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree lists what is below a directory, directories with a slash.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	do(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if path == dir || err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if entry.IsDir() {
			name += "/"
		}
		names = append(names, name)
		return nil
	}))
	slices.Sort(names)
	return strings.Join(names, " ")
}

// fill writes a file of each sort.
func fill(t *testing.T, f *Folder) {
	t.Helper()
	do(t, f.WriteFile(GrowthFile, writes("growth")))
	do(t, f.WriteFile(SnapshotFile(3), writes("three")))
	do(t, f.WriteFile(SnapshotFile(1000), writes("thousand")))
	w, err := f.Append(TimelineFile)
	do(t, err)
	do(t, writes("time_s,rss_bytes,pss_bytes\n")(w))
	do(t, writes("1.000,1,2\n")(w))
	do(t, w.Close())
}

func TestFolderHoldsWhatIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f := newFolder(t, path, current(), false)
	fill(t, f)
	do(t, f.WriteFile(GrowthFile, writes("anew")))
	if got, want := tree(t, path), "growth.pb.gz snapshots/ snapshots/003.pb.gz snapshots/1000.pb.gz timeline.csv"; got != want {
		t.Errorf("holds %s, want %s", got, want)
	}
	if content(t, path, GrowthFile) != "anew" || content(t, path, SnapshotFile(3)) != "three" || content(t, path, TimelineFile) != "time_s,rss_bytes,pss_bytes\n1.000,1,2\n" {
		t.Error("other content than was written")
	}
	do(t, f.Remove(GrowthFile))
	if err := f.Remove(GrowthFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second removal: %v", err)
	}
	if f.Path() != path {
		t.Errorf("path %s", f.Path())
	}
}

func TestFolderRelativePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	do(t, newFolder(t, "out/", current(), false).WriteFile(SummaryFile, writes("{}")))
	if got := tree(t, dir); got != "out/ out/summary.json" {
		t.Errorf("holds %s", got)
	}
}

func TestFolderOwnerAndModes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: gives files away")
	}
	path := filepath.Join(t.TempDir(), "out")
	fill(t, newFolder(t, path, Owner{65534, 65533}, false))
	seen := 0
	do(t, filepath.WalkDir(path, func(path string, entry fs.DirEntry, _ error) error {
		info, err := entry.Info()
		do(t, err)
		mode := fileMode
		if entry.IsDir() {
			mode = dirMode
		}
		stat := info.Sys().(*syscall.Stat_t)
		if stat.Uid != 65534 || stat.Gid != 65533 || info.Mode().Perm() != mode {
			t.Errorf("%s belongs to %d:%d with mode %v, want 65534:65533 and %v", path, stat.Uid, stat.Gid, info.Mode(), mode)
		}
		seen++
		return nil
	}))
	if seen != 6 {
		t.Errorf("%d files and directories, want 6", seen)
	}
}

func TestFolderRefusesNames(t *testing.T) {
	f := newFolder(t, filepath.Join(t.TempDir(), "out"), current(), false)
	for _, name := range []string{"", ".", "..", "../x", "/etc/passwd", "notes.txt", "snapshots", "snapshots/", "snapshots/../x", "snapshots/1.pb.gz", "x/growth.pb.gz"} {
		wantError(t, f.WriteFile(name, writes("")), "write "+name, "not the name of a file")
	}
}

func TestFolderWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f := newFolder(t, path, current(), false)
	do(t, f.WriteFile(SummaryFile, writes("before")))
	sentinel := errors.New("no such number")
	err := f.WriteFile(SummaryFile, func(w io.Writer) error {
		do(t, writes("half")(w))
		return sentinel
	})
	if !errors.Is(err, sentinel) || err.Error() != "write summary.json: no such number" {
		t.Errorf("error %v", err)
	}
	if tree(t, path) != "summary.json" || content(t, path, SummaryFile) != "before" {
		t.Errorf("after the error: %s", tree(t, path))
	}
}

func TestFolderFullDisk(t *testing.T) {
	path := filepath.Join(mountTmpfs(t), "out")
	f := newFolder(t, path, current(), false)
	do(t, f.WriteFile(GrowthFile, writes("before")))
	err := f.WriteFile(GrowthFile, writes(strings.Repeat("x", 1<<20)))
	if !errors.Is(err, unix.ENOSPC) || err.Error() != "write growth.pb.gz: no space left on device" {
		t.Errorf("error %v", err)
	}
	if tree(t, path) != "growth.pb.gz" || content(t, path, GrowthFile) != "before" {
		t.Errorf("after the error: %s", tree(t, path))
	}
	w, err := f.Append(TimelineFile)
	do(t, err)
	defer w.Close()
	err = writes(strings.Repeat("x", 1<<20))(w)
	if !errors.Is(err, unix.ENOSPC) || err.Error() != "write timeline.csv: no space left on device" {
		t.Errorf("error %v", err)
	}
	wantError(t, f.WriteFile(SnapshotFile(1), writes("x")), "write snapshots/001.pb.gz: no space left on device")
}

func TestFolderNotWritable(t *testing.T) {
	dir := mountTmpfs(t)
	path := filepath.Join(dir, "out")
	f := newFolder(t, path, current(), false)
	do(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	wantError(t, f.WriteFile(GrowthFile, writes("x")), "write growth.pb.gz: read-only file system")
	_, err := CreateFolder(path+"2", current(), false)
	wantError(t, err, "create "+path+"2: read-only file system")
	do(t, f.Close())
}
