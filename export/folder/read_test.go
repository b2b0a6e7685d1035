package folder

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/exporttest"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "no"), current())
	exporttest.WantError(t, err, "there is no such folder")
	_, err = Open(dir, current())
	exporttest.WantError(t, err, "it holds no summary.json and no timeline.csv of allocscope")
	do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	_, err = Open(filepath.Join(dir, "file"), current())
	exporttest.WantError(t, err, "not a directory")
	do(t, os.WriteFile(filepath.Join(dir, TimelineFile), []byte("time_s,rss_bytes,"), 0o600))
	f, err := Open(dir, current())
	do(t, err)
	defer f.Close()
	do(t, f.WriteFile(ReportFile, writes("page")))
	if content(t, dir, ReportFile) != "page" {
		t.Error("it cannot be written to")
	}
}

func TestReadFile(t *testing.T) {
	f, path := out(t)
	all := func(io.Reader) error { t.Error("it is read"); return nil }
	if err := f.ReadFile(GrowthFile, all); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	do(t, syscall.Mkfifo(filepath.Join(path, GrowthFile), 0o600))
	exporttest.WantError(t, f.ReadFile(GrowthFile, all), "read growth.pb.gz: not a regular file")
	do(t, os.Symlink("/etc/passwd", filepath.Join(path, WarmupFile)))
	exporttest.WantError(t, f.ReadFile(WarmupFile, all), "read warmup.pb.gz: ")
	exporttest.WantError(t, f.ReadFile("../secret", all), "not the name of a file of a trace's folder")
	do(t, os.WriteFile(filepath.Join(path, PlateauFile), nil, 0o600))
	do(t, os.Truncate(filepath.Join(path, PlateauFile), maxFileBytes+1))
	exporttest.WantError(t, f.ReadFile(PlateauFile, all), "more than 536870912")
}

func TestSnapshots(t *testing.T) {
	f, path := out(t)
	if got, err := f.Snapshots(); err != nil || len(got) != 0 {
		t.Errorf("of a folder without any: %v, %v", got, err)
	}
	for _, name := range []string{
		"1000.pb.gz", "010.pb.gz", "002.pb.gz", // and these are none:
		"0010.pb.gz", "3.pb.gz", "-04.pb.gz", "005.pb", ".006.pb.gz.tmp", "x07.pb.gz",
		"00000000000000000000000.pb.gz", "99999999999999999999.pb.gz",
	} {
		put(t, "", path, snapshotDir, name)
	}
	if got, err := f.Snapshots(); err != nil || !slices.Equal(got, []int{2, 10, 1000}) {
		t.Errorf("%v, %v", got, err)
	}

	t.Run("link", func(t *testing.T) {
		f, path := out(t)
		do(t, os.Symlink("/tmp", filepath.Join(path, snapshotDir)))
		_, err := f.Snapshots()
		exporttest.WantError(t, err, "list snapshots", "symbolic link")
	})
}
