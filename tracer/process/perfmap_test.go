package process

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestPerfMapFile opens a perf map only if this process can have written it.
func TestPerfMapFile(t *testing.T) {
	tracertest.NeedsRoot(t) // chown(2)
	p := tracertest.Must(Open(os.Getpid()))(t)
	t.Cleanup(func() { _ = p.Close() })
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	t.Cleanup(func() { _ = os.Remove(path) })

	const other = 54321
	must := func(err error) { t.Helper(); tracertest.NoError(t, err) }
	for name, c := range map[string]struct {
		prepare func()
		isOwn   bool
	}{
		"own": {func() { must(os.WriteFile(path, []byte("1 2 f\n"), 0o600)) }, true},
		"another user's": {func() {
			must(os.WriteFile(path, nil, 0o600))
			must(os.Chown(path, other, other))
		}, false},
		"older than the process": {func() {
			must(os.WriteFile(path, nil, 0o600))
			must(os.Chtimes(path, time.Time{}, time.Now().Add(-24*time.Hour)))
		}, false},
		"link": {func() { must(os.Symlink("/etc/passwd", path)) }, false},
		"none": {func() {}, false},
	} {
		_ = os.Remove(path)
		c.prepare()
		file, err := tracertest.Must(FindPerfMap(p))(t).Open()
		if (err == nil) != c.isOwn {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			must(file.Close())
		}
	}
}
