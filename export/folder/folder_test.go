package folder

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func writes(content string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}
}

func newFolder(t *testing.T, path string, owner Owner, force bool) *Folder {
	t.Helper()
	f, err := Create(path, owner, force)
	do(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	do(t, err)
	return string(data)
}

func put(t *testing.T, text string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	do(t, os.MkdirAll(filepath.Dir(name), 0o755))
	do(t, os.WriteFile(name, []byte(text), 0o644))
	return name
}

func do(t *testing.T, err error) {
	t.Helper()
	tracertest.NoError(t, err)
}

// out is a new folder of the user who runs the test.
func out(t *testing.T) (f *Folder, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "out")
	return newFolder(t, path, current(), false), path
}

// mustHold wants these files in a directory, directories with a slash.
func mustHold(t *testing.T, dir, want string) {
	t.Helper()
	if got := tree(t, dir); got != want {
		t.Errorf("%s holds %s, want %s", dir, got, want)
	}
}

// tree lists the files below a directory, directories with a slash.
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

func TestFolder(t *testing.T) {
	f, path := out(t)
	fill(t, f)
	do(t, f.WriteFile(GrowthFile, writes("new")))
	mustHold(t, path,
		"growth.pb.gz snapshots/ snapshots/003.pb.gz snapshots/1000.pb.gz timeline.csv")
	if content(t, path, GrowthFile) != "new" || content(t, path, SnapshotFile(3)) != "three" ||
		content(t, path, TimelineFile) != "time_s,rss_bytes,pss_bytes\n1.000,1,2\n" {
		t.Error("other content than was written")
	}
	do(t, f.Remove(GrowthFile))
	if err := f.Remove(GrowthFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second removal: %v", err)
	}
	if f.Path() != path {
		t.Errorf("path %s", f.Path())
	}

	t.Run("relative path", func(t *testing.T) {
		dir := t.TempDir()
		t.Chdir(dir)
		do(t, newFolder(t, "out/", current(), false).WriteFile(SummaryFile, writes("{}")))
		mustHold(t, dir, "out/ out/summary.json")
	})

	t.Run("owner and modes", func(t *testing.T) {
		tracertest.NeedsRoot(t) // it gives files away
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
				t.Errorf("%s belongs to %d:%d with mode %v, want 65534:65533 and %v", path,
					stat.Uid, stat.Gid, info.Mode(), mode)
			}
			seen++
			return nil
		}))
		if seen != 6 {
			t.Errorf("%d files and directories, want 6", seen)
		}
	})

	t.Run("other names", func(t *testing.T) {
		f, _ := out(t)
		for _, name := range []string{
			"", ".", "..", "../x", "/etc/passwd", "notes.txt", "snapshots", "snapshots/",
			"snapshots/../x", "snapshots/1.pb.gz", "x/growth.pb.gz",
		} {
			exporttest.WantError(t, f.WriteFile(name, writes("")), "write "+name, "not the name of a file")
		}
	})

	t.Run("failing write", func(t *testing.T) {
		f, path := out(t)
		do(t, f.WriteFile(SummaryFile, writes("before")))
		sentinel := errors.New("no such number")
		err := f.WriteFile(SummaryFile, func(w io.Writer) error {
			do(t, writes("half")(w))
			return sentinel
		})
		if !errors.Is(err, sentinel) || err.Error() != "write summary.json: no such number" {
			t.Errorf("error %v", err)
		}
		mustHold(t, path, "summary.json")
		if got := content(t, path, SummaryFile); got != "before" {
			t.Errorf("after the error: %s", got)
		}
	})

	t.Run("full disk", func(t *testing.T) {
		const fullDisk = "no space left on device (make room, or choose a folder on another disk with -o)"
		path := filepath.Join(mountTmpfs(t), "out")
		f := newFolder(t, path, current(), false)
		do(t, f.WriteFile(GrowthFile, writes("before")))
		err := f.WriteFile(GrowthFile, writes(strings.Repeat("x", 1<<20)))
		if !errors.Is(err, unix.ENOSPC) ||
			err.Error() != "write growth.pb.gz: "+fullDisk {
			t.Errorf("error %v", err)
		}
		if tree(t, path) != "growth.pb.gz" || content(t, path, GrowthFile) != "before" {
			t.Errorf("after the error: %s", tree(t, path))
		}
		w, err := f.Append(TimelineFile)
		do(t, err)
		defer w.Close()
		err = writes(strings.Repeat("x", 1<<20))(w)
		if !errors.Is(err, unix.ENOSPC) ||
			err.Error() != "write timeline.csv: "+fullDisk {
			t.Errorf("error %v", err)
		}
		exporttest.WantError(t, f.WriteFile(SnapshotFile(1), writes("x")),
			"write snapshots/001.pb.gz: "+fullDisk)
	})

	t.Run("not writable", func(t *testing.T) {
		dir := mountTmpfs(t)
		path := filepath.Join(dir, "out")
		f := newFolder(t, path, current(), false)
		do(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		exporttest.WantError(t, f.WriteFile(GrowthFile, writes("x")),
			"write growth.pb.gz: read-only file system")
		_, err := Create(path+"2", current(), false)
		exporttest.WantError(t, err, "create "+path+"2: read-only file system")
		do(t, f.Close())
	})
}

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

func TestCreate(t *testing.T) {
	dir := occupied(t)
	before := tree(t, dir)
	for _, test := range []struct {
		path  string
		force bool
		want  string
	}{
		{"empty", false, ": exists (choose another with --output, or replace it with --force)"},
		{"foreign", false, ": exists (choose"},
		{
			"foreign", true,
			": exists and holds files that allocscope did not write (choose another with --output)",
		},
		{"other", true, ": exists and holds files that allocscope did not write"},
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
		_, err := Create(path, current(), test.force)
		exporttest.WantError(t, err, "create "+path+test.want)
	}
	mustHold(t, dir, before)
	if content(t, dir, "foreign", "notes.txt") != "mine" || content(t, dir, "file") != "mine" {
		t.Error("files of others have changed")
	}

	t.Run("odd paths", func(t *testing.T) {
		_, err := Create("", current(), true)
		exporttest.WantError(t, err, "its name is empty")
		_, err = Create("/", current(), true)
		exporttest.WantError(t, err, "create /: ")
	})

	// The kernel refuses a thread with another file system UID, as a server of NFS refuses root.
	t.Run("a folder where root may not write", func(t *testing.T) {
		tracertest.NeedsRoot(t)
		parent := t.TempDir()
		do(t, os.Chmod(parent, 0o755))
		do(t, os.Chmod(filepath.Dir(parent), 0o755))
		path := filepath.Join(parent, "out")

		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		do(t, unix.Setfsuid(65534))
		_, err := Create(path, current(), false)
		do(t, unix.Setfsuid(os.Getuid()))
		exporttest.WantError(t, err, "create "+path+": permission denied (choose another with --output")
	})

	// A parent may be reached through a link: /home often is one.
	t.Run("linked parent", func(t *testing.T) {
		dir := t.TempDir()
		do(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
		do(t, os.Symlink("real", filepath.Join(dir, "link")))
		newFolder(t, filepath.Join(dir, "link", "out"), current(), false)
		mustHold(t, dir, "link real/ real/out/")
	})
}

func TestCreateWithForce(t *testing.T) {
	t.Run("empty folder", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		do(t, os.Mkdir(path, 0o755))
		fill(t, newFolder(t, path, current(), true))
		info, err := os.Stat(path)
		do(t, err)
		if info.Mode().Perm() != dirMode {
			t.Errorf("mode %v, want %v", info.Mode(), dirMode)
		}
	})

	// Ours are removed, finished or not; nothing else is.
	t.Run("replaces", func(t *testing.T) {
		first, path := out(t)
		fill(t, first)
		do(t, first.WriteFile(ReportFile, writes("report")))
		do(t, first.WriteFile(GPUSnapshotFile(0), writes("one")))
		do(t, first.WriteFile(GPUSnapshotFile(42), writes("of 42")))
		if names, err := first.GPUSnapshots(); err != nil ||
			!slices.Equal(names, []string{"gpu-snapshot-42.pickle", "gpu-snapshot.pickle"}) {
			t.Errorf("GPU snapshots %q, %v", names, err)
		}
		put(t, "half", path, temporaryName(SummaryFile))
		put(t, "half", path, snapshotDir, temporaryName("004.pb.gz"))
		put(t, "mine", path, "notes.txt")
		put(t, "mine", path, "gpu-snapshot-x.pickle")
		put(t, "mine", path, "summary.json.tmp")
		put(t, "mine", path, ".growth.pb.gz")
		put(t, "mine", path, snapshotDir, "mine.pb.gz")
		newFolder(t, path, current(), true)
		mustHold(t, path,
			".growth.pb.gz gpu-snapshot-x.pickle notes.txt snapshots/ snapshots/mine.pb.gz "+
				"summary.json.tmp")
	})

	// A folder is known by its summary alone, too, and nothing of it remains.
	t.Run("summary alone", func(t *testing.T) {
		first, path := out(t)
		do(t, first.WriteFile(SummaryFile, writes(signatures[SummaryFile]+"1\"\n}\n")))
		do(t, first.WriteFile(SnapshotFile(1), writes("one")))
		newFolder(t, path, current(), true)
		mustHold(t, path, "")
	})

	t.Run("other owner", func(t *testing.T) {
		tracertest.NeedsRoot(t) // it gives files away
		path := filepath.Join(t.TempDir(), "out")
		do(t, os.Mkdir(path, 0o755))
		_, err := Create(path, Owner{65534, 65534}, true)
		exporttest.WantError(t, err,
			"exists and belongs to UID 0, not to UID 65534 (choose another with --output)")
		do(t, os.Chown(path, 65534, 65534))
		newFolder(t, path, Owner{65534, 65534}, true)
	})

	t.Run("planted files", func(t *testing.T) {
		for _, name := range []string{GrowthFile, snapshotDir, SnapshotFile(1)} {
			dir := t.TempDir()
			victim := put(t, "victim", dir, "victim", "001.pb.gz")
			path := filepath.Join(dir, "out")
			put(t, "time_s,rss_bytes,", path, TimelineFile)
			planted := filepath.Join(path, name)
			do(t, os.MkdirAll(filepath.Dir(planted), 0o755))
			do(t, os.Symlink(filepath.Dir(victim), planted))
			_, err := Create(path, current(), true)
			exporttest.WantError(t, err, "create "+path+": ", filepath.Base(planted))
			if content(t, victim) != "victim" {
				t.Errorf("%s: the victim has changed", name)
			}
		}
	})
}

func TestDelete(t *testing.T) {
	f, path, victim := attacked(t)
	fill(t, f)
	do(t, Delete(path, current()))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}

	do(t, os.Symlink(victim, path))
	exporttest.WantError(t, Delete(path, current()), "is a symbolic link or not a directory")
	do(t, os.Remove(path))
	put(t, "mine", path, "notes.txt")
	put(t, "{}", path, SummaryFile)
	exporttest.WantError(t, Delete(path, current()), "it holds files that allocscope did not write")
	if got := content(t, path, "notes.txt"); got != "mine" {
		t.Errorf("the file of someone else holds %q", got)
	}
	exporttest.WantError(t, Delete(path, Owner{current().UID + 1, 0}), "it belongs to UID")
	unharmed(t, victim)
}
