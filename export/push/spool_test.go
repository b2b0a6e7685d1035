package push

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// IDs of profiles that wait, the oldest first.
func waitingIDs(t *testing.T, p *Pusher) (ids []string) {
	t.Helper()
	waiting := tracertest.Must(p.spool.list())(t)
	for _, w := range waiting {
		ids = append(ids, strings.TrimSuffix(w.name, ".json"))
	}
	return ids
}

func TestSpoolFull(t *testing.T) {
	tr := onlyTrace(t)
	p := open(t, Options{URL: "http://127.0.0.1:1", MaxSpoolBytes: 5 * blockBytes})
	p.addTrace(t, tr)
	first := waitingIDs(t, p)
	p.addTrace(t, tr)
	got := waitingIDs(t, p)
	if len(first) != 3 || len(got) != 5 || !slices.Equal(got[:2], first[1:]) {
		t.Errorf("%q wait, want the last two of %q and three", got, first)
	}
	if s := p.Stats(); s.Dropped != 1 || s.Waiting != 5 || s.WaitingBytes != 5*blockBytes {
		t.Errorf("%+v", s)
	}

	t.Run("what is being sent stays", func(t *testing.T) {
		c := tracertest.Must(p.spool.claim(got[0] + ".json"))(t)
		defer c.release()
		p.addTrace(t, tr)
		if after := waitingIDs(t, p); len(after) != 5 || after[0] != got[0] || after[1] != got[4] {
			t.Errorf("%q wait, after %q", after, got)
		}
	})

	t.Run("profile larger than the spool", func(t *testing.T) {
		p := open(t, Options{URL: "http://127.0.0.1:1", MaxSpoolBytes: blockBytes - 1})
		p.addTrace(t, tr)
		if s := p.Stats(); s.Dropped != 3 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSpoolDamaged(t *testing.T) {
	s := newServer(t)
	p := open(t, Options{URL: s.URL})
	p.addTrace(t, onlyTrace(t))
	ids := waitingIDs(t, p)
	good := tracertest.Must(os.ReadFile(filepath.Join(p.Directory(), ids[0]+".json")))(t)
	flipped := []byte(strings.Replace(string(good), ids[0], uuid.NewString(), 1))
	at := strings.Index(string(good), "rawProfile") + len(`rawProfile":"`) + 60
	broken := slices.Clone(good)
	broken[at] ^= 1 // another character of base64, which gzip's checksum finds

	damaged := 0
	put := func(make func(path string) error) {
		t.Helper()
		damaged++
		tracertest.NoError(t, make(filepath.Join(p.Directory(), uuid.NewString()+".json")))
	}
	for _, content := range [][]byte{
		nil, []byte("{}"), []byte(`{"series":[{"labels":[],"samples":[]}]}`), good[:len(good)/2],
		good, // of another ID
		flipped, make([]byte, 1<<20),
	} {
		put(func(path string) error { return os.WriteFile(path, content, 0o600) })
	}
	put(func(path string) error { return os.Symlink("/etc/passwd", path) })
	put(func(path string) error { return unix.Mkfifo(path, 0o600) })
	put(func(path string) error { return os.Mkdir(path, 0o700) })
	damaged++
	tracertest.NoError(t, os.WriteFile(filepath.Join(p.Directory(), ids[0]+".json"), broken, 0o600))
	tracertest.NoError(t, os.WriteFile(filepath.Join(p.Directory(), "notes.txt"), nil, 0o600))

	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 2)
	if got := p.Stats(); got.Damaged != uint64(damaged) || got.Waiting != 0 {
		t.Errorf("%+v, want %d damaged", got, damaged)
	}
	aside, err := os.ReadDir(filepath.Join(p.Directory(), damagedDir))
	if err != nil || len(aside) != damaged {
		t.Errorf("%d files aside, %v", len(aside), err)
	}
}

// The refused profiles are bounded, too: the oldest ones make room.
func TestSpoolAside(t *testing.T) {
	p := open(t, Options{URL: "http://127.0.0.1:1", MaxSpoolBytes: 20 * blockBytes})
	tr := onlyTrace(t)
	var all []string
	for range 4 {
		p.addTrace(t, tr)
		for _, id := range waitingIDs(t, p) {
			c := tracertest.Must(p.spool.claim(id + ".json"))(t)
			tracertest.NoError(t, c.moveTo(refusedDir))
			c.release()
			all = append(all, id+".json")
		}
	}

	aside := tracertest.Must(os.ReadDir(filepath.Join(p.Directory(), refusedDir)))(t)
	var kept []string
	for _, f := range aside {
		kept = append(kept, f.Name())
	}
	if !slices.Equal(kept, all[len(all)-5:]) {
		t.Errorf("%q are kept, want the last five of %q", kept, all)
	}
}
