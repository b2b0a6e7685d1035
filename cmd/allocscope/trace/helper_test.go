package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export"
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
func createFolder(t *testing.T) (folder *export.Folder, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "out")
	folder, err := export.CreateFolder(path, export.Owner{UID: os.Geteuid(), GID: os.Getegid()},
		false)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { folder.Close() })
	return folder, path
}

func readFile(t *testing.T, folder, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
