package export

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOnlyAFolderOfATraceIsOpened(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenFolder(filepath.Join(dir, "no"), current())
	wantError(t, err, "there is no such folder")
	_, err = OpenFolder(dir, current())
	wantError(t, err, "it holds no summary.json and no timeline.csv of allocscope")
	do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	_, err = OpenFolder(filepath.Join(dir, "file"), current())
	wantError(t, err, "not a directory")
	do(t, os.WriteFile(filepath.Join(dir, TimelineFile), []byte("time_s,rss_bytes,"), 0o600))
	f, err := OpenFolder(dir, current())
	do(t, err)
	defer f.Close()
	do(t, f.WriteFile(ReportFile, writes("page")))
	if content(t, dir, ReportFile) != "page" {
		t.Error("it cannot be written to")
	}
}

func TestNothingButRegularFilesOfAFolderAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f := newFolder(t, path, current(), false)
	all := func(io.Reader) error { t.Error("it is read"); return nil }
	if err := f.ReadFile(GrowthFile, all); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	do(t, syscall.Mkfifo(filepath.Join(path, GrowthFile), 0o600))
	wantError(t, f.ReadFile(GrowthFile, all), "read growth.pb.gz: not a regular file")
	do(t, os.Symlink("/etc/passwd", filepath.Join(path, WarmupFile)))
	wantError(t, f.ReadFile(WarmupFile, all), "read warmup.pb.gz: ")
	wantError(t, f.ReadFile("../secret", all), "not the name of a file of a trace's folder")
	do(t, os.WriteFile(filepath.Join(path, PlateauFile), nil, 0o600))
	do(t, os.Truncate(filepath.Join(path, PlateauFile), largestFile+1))
	wantError(t, f.ReadFile(PlateauFile, all), "more than 536870912")
}

func TestASummaryIsReadAsItWasWritten(t *testing.T) {
	want := summary()
	var first, second bytes.Buffer
	do(t, want.Write(&first))
	written := first.String()
	got, err := ReadSummary(&first)
	do(t, err)
	do(t, got.Write(&second))
	if second.String() != written {
		t.Errorf("read as\n%s", second.String())
	}
}

func TestWhatIsNoSummaryIsRefused(t *testing.T) {
	for content, want := range map[string]string{
		"": "it is cut short", `{"schema": "allocscope/1", "dur`: "it is cut short", `{"schema": "allocscope/2"}`: `its schema is "allocscope/2"`,
		`{"schema": "allocscope/1"} {}`: "something follows its end", `{"schema": 1}`: "schema", "\x00": "invalid character",
		`{"schema": "allocscope/1"` + string(bytes.Repeat([]byte(" "), largestSummary)) + "}": "it has more than 33554432 bytes",
	} {
		_, err := ReadSummary(bytes.NewReader([]byte(content)))
		wantError(t, err, want)
	}
}
