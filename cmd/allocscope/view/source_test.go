package view

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	exported "github.com/allocscope/allocscope/export/profile"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
)

func TestSource(t *testing.T) {
	t.Run("allowed and refused", testAllowed)
	t.Run("files that block", testBlockingFiles)
	t.Run("relative paths", testRelativePaths)
}

// named writes a growth profile whose function is in that file, on line 2.
func named(t *testing.T, dir *folder.Folder, file string) {
	t.Helper()
	holdings := []growth.Holding{{
		Stack: &growth.Stack{ID: 1, Frames: []growth.Frame{frame("leak", file, 2)}},
		Kind:  growth.KindHeap, InuseBytes: 1, ResidentBytes: 1, InuseObjects: 1,
	}}

	err := dir.WriteFile(folder.GrowthFile,
		func(w io.Writer) error {
			return exported.Write(w, holdings, exported.Info{Interval: 1})
		})
	must(t, err)
}

func testAllowed(t *testing.T) {
	_, dir := trace(t)
	file := filepath.Join(t.TempDir(), "train.py")
	put(t, file, "import torch\nleak = make <it>()\n")
	named(t, dir, file)
	allowed, refused := serve(t, dir, true), serve(t, dir, false)
	mustGet(t, allowed.URL+"/growth/source?f=leak", "leak = make &lt;it&gt;()")
	mustSay(t, "index", mustGet(t, allowed.URL+"/"), `href="growth/source"`)
	body := mustAnswer(t, refused.URL+"/growth/source?f=leak", http.StatusForbidden, "root",
		"as the user whose folder it is")
	mustNotSay(t, "the page", body, "leak = make")
	index := mustGet(t, refused.URL+"/", "as the user whose folder it is")
	mustNotSay(t, "the index", index, `/source"`)

	for _, server := range []string{allowed.URL, refused.URL} {
		mustNotSay(t, "peek", mustGet(t, server+"/growth/peek?f=leak"), "leak = make")
	}
}

func testBlockingFiles(t *testing.T) {
	_, traced := trace(t)
	dir := t.TempDir()
	t.Chdir(dir)
	below := filepath.Join(dir, "below")
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	must(t, unix.Mkfifo(pipe, 0o600))

	put(t, large, "")
	must(t, os.Truncate(large, maxSourceBytes+1))

	must(t, os.Mkdir(below, 0o700))

	t.Chdir(below)
	for _, file := range []string{
		pipe, large, "/dev/zero", "pipe", "./pipe", "../pipe", processDirectory + "pipe",
		processDirectory + processDirectory + "pipe",
		processDirectory + "./pipe", "/opt/below/../.." + pipe,
	} {
		named(t, traced, file)
		server := serve(t, traced, true)
		mustAnswer(t, server.URL+"/growth/source?f=leak", http.StatusForbidden,
			"The source view is off: this profile names", filepath.Base(file))
	}
}

func testRelativePaths(t *testing.T) {
	_, traced := trace(t)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))

	put(t, filepath.Join(dir, "train.py"), "import torch\nleak = make()\n")
	t.Chdir(filepath.Join(dir, "a/b"))
	for _, file := range []string{"train.py", "./train.py", processDirectory + "train.py"} {
		named(t, traced, file)
		mustGet(t, serve(t, traced, true).URL+"/growth/source?f=leak", "leak = make()")
	}
}
