package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/bundle"
)

// TestBundle makes a bundle of a recorded trace, and reads it as the recipient does.
func TestBundle(t *testing.T) {
	t.Parallel()
	trace, err := filepath.Abs(filepath.Join(repository, "export/bundle/testdata/trace"))
	must(t, err)
	room := t.TempDir()
	file := filepath.Join(room, "b.tar.gz")

	made := call(t, "bundle", trace, "-o", file)
	made.mustPrint("wrote", "doctor.json", "names in code", "1 user",
		"libraries of Linux distributions", "look into it", "--hide NAME")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	call(t, "bundle", trace, "-o", file).mustEndSaying(int(exit.Failed), "it is there already")

	if out, err := exec.Command("tar", "-C", room, "-xzf", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	unpacked := filepath.Join(room, bundle.Name)
	call(t, "show", "--details", unpacked).mustPrint("GROWING", "name-", "Who keeps it")
	call(t, "report", unpacked).mustEnd(0)

	call(t, "diff", trace, unpacked).mustPrint("name-")

	kept := call(t, "bundle", trace, "--keep-names", "-o", filepath.Join(room, "kept.tar.gz"))
	kept.mustPrint("all names, paths and command lines are in it")
}
