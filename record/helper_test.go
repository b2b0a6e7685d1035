package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
)

// mustSay checks that a text has all words.
func mustSay(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s does not say %q:\n%s", where, word, text)
		}
	}
}

// createFolder creates the folder of a trace.
func createFolder(t *testing.T) (dir *folder.Folder, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "out")
	dir, err := folder.Create(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()},
		false)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { dir.Close() })
	return dir, path
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
