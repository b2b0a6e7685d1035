package record

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

var mustSay = tracertest.MustSay

// createFolder creates the folder of a trace.
func createFolder(t *testing.T) (dir *folder.Folder, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "out")
	dir, err := folder.Create(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()},
		false)
	tracertest.NoError(t, err)

	t.Cleanup(func() { dir.Close() })
	return dir, path
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	data := tracertest.Must(os.ReadFile(filepath.Join(dir, name)))(t)
	return string(data)
}
