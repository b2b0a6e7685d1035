package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func newDirectory(t *testing.T) *directory {
	t.Helper()
	d := tracertest.Must(openDirectory(filepath.Join(t.TempDir(), "agent")))(t)

	t.Cleanup(d.close)
	return d
}

// putTrace makes a folder as a trace of size bytes leaves it.
func putTrace(t *testing.T, d *directory, name string, size int) {
	t.Helper()
	dir := d.tracePath(name)
	for path, data := range map[string]string{
		"summary.json":           "{\n  \"schema\": \"allocscope/1\"}",
		"timeline.csv":           strings.Repeat("x", size),
		"snapshots/000.pb.gz":    "x",
		"snapshots/.1.pb.gz.tmp": "",
	} {
		if data == "" {
			continue
		}
		path = filepath.Join(dir, path)
		tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		tracertest.NoError(t, os.WriteFile(path, []byte(data), 0o600))
	}
}

func names(t *testing.T, d *directory) string {
	t.Helper()
	entries := tracertest.Must(os.ReadDir(d.tracePath("")))(t)

	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}

	return strings.Join(all, " ")
}

func TestDirectory(t *testing.T) {
	t.Run("modes and lock", func(t *testing.T) {
		d := newDirectory(t)
		for _, path := range []string{d.path, d.tracePath("")} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v %v", path, info.Mode(), err)
			}
		}
		if _, err := openDirectory(d.path); !errors.Is(err, ErrInUse) {
			t.Errorf("a second one: %v", err)
		}
		d.close()
		again, err := openDirectory(d.path)
		if err != nil {
			t.Fatalf("after the first has ended: %v", err)
		}
		again.close()
	})

	t.Run("refused", func(t *testing.T) {
		parent := t.TempDir()
		link, open, file := filepath.Join(parent, "link"), filepath.Join(parent, "open"), filepath.Join(parent, "file")
		if err := errors.Join(os.Symlink(parent, link), os.Mkdir(open, 0o700), os.Chmod(open, 0o777),
			os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		inside := filepath.Join(parent, "inside")
		tracertest.NoError(t, os.Mkdir(inside, 0o700))
		tracertest.NoError(t, os.Symlink("/tmp", filepath.Join(inside, "traces")))
		for path, want := range map[string]string{
			link: "link is a symbolic link", open: "others may write into open", file: "not a directory",
			inside: "traces is a symbolic link", filepath.Join(parent, "a/b"): "no such file or directory",
		} {
			if _, err := openDirectory(path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", path, err, want)
			}
		}
	})
}

func TestTraceName(t *testing.T) {
	d := newDirectory(t)
	now := time.Date(2026, 11, 26, 2, 15, 0, 0, time.UTC)
	for job, want := range map[string]string{
		"4711":                    "4711-3-20261126T021500Z",
		"":                        "pid99-3-20261126T021500Z",
		"../../etc/passwd":        "etc-passwd-3-20261126T021500Z",
		"a b\n\x1b[31m/é":         "a-b-31m--3-20261126T021500Z",
		"-rf":                     "rf-3-20261126T021500Z",
		strings.Repeat("x", 4096): strings.Repeat("x", 64) + "-3-20261126T021500Z",
	} {
		got := d.newTraceName(growth.Identity{Job: job, Rank: 3}, 99, now)
		if got != want || !traceName.MatchString(got) {
			t.Errorf("%.40q: %s, want %s", job, got, want)
		}
	}

	putTrace(t, d, "j-20261126T021500Z", 1)
	putTrace(t, d, "j-20261126T021500Z-2", 1)
	got := d.newTraceName(growth.Identity{Job: "j", Rank: growth.Unknown}, 99, now)
	if got != "j-20261126T021500Z-3" || !traceName.MatchString(got) {
		t.Errorf("a name that is taken: %s", got)
	}
}

func TestRetain(t *testing.T) {
	fill := func(t *testing.T) *directory {
		d := newDirectory(t)
		for day := 1; day <= 4; day++ {
			putTrace(t, d, fmt.Sprintf("%c-202611%02dT000000Z", 'e'-day, day), 1000)
		}
		return d
	}

	for name, c := range map[string]struct {
		keep      int
		bytes     int64
		writing   string
		want      string
		wantBytes int64
	}{
		"all":           {9, 1 << 20, "", "a-20261104T000000Z b-20261103T000000Z c-20261102T000000Z d-20261101T000000Z", 4 * 1030},
		"number":        {2, 1 << 20, "", "a-20261104T000000Z b-20261103T000000Z", 2 * 1030},
		"size":          {9, 3 * 1030, "", "a-20261104T000000Z b-20261103T000000Z c-20261102T000000Z", 3 * 1030},
		"being written": {1, 1 << 20, "d-20261101T000000Z", "d-20261101T000000Z", 1030},
		"nothing fits":  {9, 1, "a-20261104T000000Z", "a-20261104T000000Z", 1030},
	} {
		t.Run(name, func(t *testing.T) {
			d := fill(t)
			_, left, err := d.retain(c.keep, c.bytes, c.writing)
			if got := names(t, d); err != nil || got != c.want || left != c.wantBytes {
				t.Errorf("left %s, %d bytes, %v; want %s, %d bytes", got, left, err, c.want,
					c.wantBytes)
			}
		})
	}

	t.Run("what the agent did not make", func(t *testing.T) {
		d := fill(t)
		victim := t.TempDir()
		put := func(path string) string {
			tracertest.NoError(t, os.WriteFile(path, []byte("secret"), 0o600))
			return path
		}
		kept := []string{
			put(filepath.Join(victim, "summary.json")),
			put(d.tracePath("d-20261101T000000Z/mine.txt")),
			put(d.tracePath("notes-20261101T000000Z")),
		}
		tracertest.NoError(t, os.Symlink(victim, d.tracePath("x-20200101T000000Z")))
		tracertest.NoError(t, os.Mkdir(d.tracePath("mine"), 0o700))
		gone, _, err := d.retain(1, 1<<20, "")
		if err == nil || len(gone) != 2 {
			t.Errorf("removed %v, %v", gone, err)
		}
		for _, path := range kept {
			if data, err := os.ReadFile(path); err != nil || string(data) != "secret" {
				t.Errorf("%s: %q, %v", path, data, err)
			}
		}
		want := "a-20261104T000000Z d-20261101T000000Z mine notes-20261101T000000Z x-20200101T000000Z"
		if got := names(t, d); got != want {
			t.Errorf("left %s, want %s", got, want)
		}
	})
}
