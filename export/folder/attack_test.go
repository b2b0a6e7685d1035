package folder

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// attacked is a folder with a directory of someone else beside it, which nothing must get into.
func attacked(t *testing.T) (f *Folder, path, victim string) {
	t.Helper()
	dir := t.TempDir()
	victim = filepath.Join(dir, "victim")
	put(t, "victim", victim, "secret")
	path = filepath.Join(dir, "out")
	return newFolder(t, path, current(), false), path, victim
}

func unharmed(t *testing.T, victim string) {
	t.Helper()
	if got := tree(t, victim); got != "secret" || content(t, victim, "secret") != "victim" {
		t.Errorf("the victim holds %s", got)
	}
}

func TestAttack(t *testing.T) {
	t.Run("planted snapshots", func(t *testing.T) {
		for name, plant := range map[string]func(path, victim string) error{
			"link outside": func(path, victim string) error { return os.Symlink(victim, path) },
			"link inside":  func(path, _ string) error { return os.Symlink(".", path) },
			"dangling":     func(path, _ string) error { return os.Symlink("nowhere", path) },
			"pipe":         func(path, _ string) error { return syscall.Mkfifo(path, 0o644) },
			"file":         func(path, _ string) error { return os.WriteFile(path, nil, 0o644) },
		} {
			t.Run(name, func(t *testing.T) {
				f, path, victim := attacked(t)
				do(t, plant(filepath.Join(path, snapshotDir), victim))
				exporttest.WantError(t, f.WriteFile(SnapshotFile(3), writes("x")),
					"write snapshots/003.pb.gz: snapshots is a symbolic link or not a directory")
				exporttest.WantError(t, f.Remove(SnapshotFile(3)),
					"remove snapshots/003.pb.gz: snapshots is a symbolic link")
				if got := tree(t, path); got != "snapshots" && got != "snapshots/" {
					t.Errorf("holds %s", got)
				}
				unharmed(t, victim)
			})
		}
	})

	// The folder that was made is written to, whatever took its place.
	t.Run("exchanged folder", func(t *testing.T) {
		f, path, victim := attacked(t)
		do(t, f.WriteFile(SnapshotFile(1), writes("one")))
		do(t, os.Rename(path, path+".moved"))
		do(t, os.Symlink(victim, path))
		fill(t, f)
		if got := content(t, path+".moved", GrowthFile); got != "growth" {
			t.Errorf("the moved folder's file holds %q", got)
		}
		unharmed(t, victim)
	})

	// A file under the final name is replaced and not written to; under a name that is about to be
	// made it is an error.
	t.Run("planted files", func(t *testing.T) {
		for name, plant := range map[string]func(secret, path string) error{
			"symbolic link": os.Symlink, "hard link": os.Link,
		} {
			t.Run(name, func(t *testing.T) {
				f, path, victim := attacked(t)
				secret := filepath.Join(victim, "secret")
				for _, planted := range []string{
					GrowthFile, temporaryName(SummaryFile), TimelineFile,
				} {
					do(t, plant(secret, filepath.Join(path, planted)))
				}
				do(t, f.WriteFile(GrowthFile, writes("growth")))
				info, err := os.Lstat(filepath.Join(path, GrowthFile))
				do(t, err)
				if !info.Mode().IsRegular() || content(t, path, GrowthFile) != "growth" {
					t.Errorf("the file was not replaced: %v", info)
				}
				exporttest.WantError(t, f.WriteFile(SummaryFile, writes("x")),
					"write summary.json: file exists")
				_, err = f.Append(TimelineFile)
				exporttest.WantError(t, err, "create timeline.csv: file exists")
				unharmed(t, victim)
			})
		}
	})

	// A file that takes the place of a directory between its making and its opening is not given
	// away.
	t.Run("exchanged new directory", func(t *testing.T) {
		tracertest.NeedsRoot(t) // it gives files away
		dir := t.TempDir()
		put(t, "x", dir, "full", "file")
		do(t, os.Mkdir(filepath.Join(dir, "other"), 0o755))
		do(t, os.Chown(filepath.Join(dir, "other"), 1, 1))
		for _, name := range []string{"full", "other"} {
			root, err := os.OpenRoot(filepath.Join(dir, name))
			do(t, err)
			exporttest.WantError(t, chownNewDir(root, Owner{65534, 65534}), "another directory replaced it")
			do(t, root.Close())
			info, err := os.Stat(filepath.Join(dir, name))
			do(t, err)
			if info.Sys().(*syscall.Stat_t).Uid == 65534 {
				t.Errorf("%s was given away", name)
			}
		}
	})
}
