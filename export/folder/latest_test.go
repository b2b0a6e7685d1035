package folder

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const other = 65534 // nobody

// linked makes a folder of a name in the working directory, and a link to it.
func linked(t *testing.T, name string, owner Owner) error {
	t.Helper()
	f := tracertest.Must(Create(name, owner, false))(t)
	defer f.Close()
	return f.LinkLatest()
}

// mustLead checks where the link leads and whose it is, and that nothing else is left behind.
func mustLead(t *testing.T, to string, uid int) {
	t.Helper()
	if got, err := os.Readlink(LatestLink); err != nil || got != to {
		t.Errorf("the link leads to %q, %v; want %q", got, err, to)
	}
	info := tracertest.Must(os.Lstat(LatestLink))(t)
	if got := info.Sys().(*syscall.Stat_t).Uid; int(got) != uid {
		t.Errorf("the link belongs to UID %d, want %d", got, uid)
	}
	mustBeClean(t)
}

func mustBeClean(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob(".*"); len(left) > 0 {
		t.Errorf("leaves %q behind", left)
	}
}

// inSharedDirectory changes to a directory that everybody may write, as /tmp.
func inSharedDirectory(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	tracertest.NoError(t, os.Chmod(".", 0o777|os.ModeSticky))
}

func TestLinkLatest(t *testing.T) {
	tracertest.NeedsRoot(t) // it gives files away
	inSharedDirectory(t)
	for _, c := range []struct {
		name  string
		owner Owner
	}{
		{"allocscope-1-a", Owner{other, other}},
		{"allocscope-2-b", Owner{other, other}}, // replaces it
		{"allocscope-3-c", Owner{}},             // root replaces it only where it is its own
	} {
		err := linked(t, c.name, c.owner)
		if c.owner.UID == 0 {
			exporttest.WantError(t, err, "UID 65534")
			mustLead(t, "allocscope-2-b", other)
			continue
		}
		tracertest.NoError(t, err)
		mustLead(t, c.name, c.owner.UID)
	}

	mustChoose := func(by Owner) {
		t.Helper()
		path, err := Choose(nil, "allocscope view", by)
		if path != "allocscope-2-b" || err != nil {
			t.Errorf("the latest is %q, %v", path, err)
		}
	}
	mustChoose(Owner{other, other})

	// Elsewhere root may replace it: a directory of one user.
	tracertest.NoError(t, os.Chmod(".", 0o755))
	mustChoose(Owner{})
	if err := linked(t, "allocscope-4-d", Owner{}); err != nil {
		t.Error(err)
	}
	mustLead(t, "allocscope-4-d", 0)
}

// A file in the place of the link stays, and so does the file that it leads to.
func TestLinkLatestKeeps(t *testing.T) {
	tracertest.NeedsRoot(t) // it gives files away
	for name, make := range map[string]func() error{
		"a file":      func() error { return os.WriteFile(LatestLink, []byte("mine"), 0o600) },
		"a directory": func() error { return os.Mkdir(LatestLink, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			tracertest.NoError(t, make())
			before, err := os.Lstat(LatestLink)
			tracertest.NoError(t, err)

			err = linked(t, "allocscope-1-a", Owner{})
			exporttest.WantError(t, err, "is no symbolic link")
			after, err := os.Lstat(LatestLink)
			if err != nil || !os.SameFile(before, after) {
				t.Errorf("%s was replaced: %v", name, err)
			}
			mustBeClean(t)

			_, err = Choose(nil, "allocscope view", Owner{})
			exporttest.WantError(t, err, "is no symbolic link")
		})
	}

	t.Run("what a link leads to", func(t *testing.T) {
		t.Chdir(t.TempDir())
		victim := filepath.Join(t.TempDir(), "victim")
		tracertest.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
		tracertest.NoError(t, os.Symlink(victim, LatestLink))
		tracertest.NoError(t, linked(t, "allocscope-1-a", Owner{other, other}))
		mustLead(t, "allocscope-1-a", other)
		if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
			t.Errorf("the victim holds %q, %v", text, err)
		}
	})

	t.Run("a folder elsewhere", func(t *testing.T) {
		t.Chdir(t.TempDir())
		err := linked(t, filepath.Join(t.TempDir(), "out"), Owner{})
		exporttest.WantError(t, err, "not below")
	})
}

func TestChoose(t *testing.T) {
	tracertest.NeedsRoot(t) // it gives a link away
	inSharedDirectory(t)
	refused := func(want string, arguments ...string) {
		t.Helper()
		_, err := Choose(arguments, "allocscope view", Owner{})
		exporttest.WantError(t, err, want)
	}

	refused("there is no allocscope-latest here")
	if path, err := Choose([]string{"any"}, "allocscope view", Owner{}); path != "any" || err != nil {
		t.Errorf("%q, %v", path, err)
	}

	for i, name := range []string{"a", "b", "c"} {
		tracertest.NoError(t, os.Mkdir(name, 0o700))
		at := time.Now().Add(time.Duration([]int{1, 3, 2}[i]) * time.Hour)
		tracertest.NoError(t, os.Chtimes(name, at, at))
	}
	refused("3 folders are named, and one can be shown: the newest is b (allocscope view b)",
		"a", "b", "c")
	refused("2 folders are named", "none", "neither")

	tracertest.NoError(t, os.Symlink("/etc", LatestLink))
	refused(`leads out of this folder, to "/etc"`)

	tracertest.NoError(t, os.Lchown(LatestLink, 1234, 1234))
	refused("belongs to UID 1234, not to you")
}
