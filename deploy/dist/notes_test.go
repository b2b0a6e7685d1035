package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "CHANGELOG.md")
	err := os.WriteFile(path, []byte(`# Changelog

## [Unreleased]: 0.2.0

- later

## [0.1.0] - 2026-12-01

### Added

- a line

## [0.1.0-rc1] - 2026-11-27

- a candidate

## [0.0.9] - 2026-11-01
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}

	for version, want := range map[string]string{
		"0.1.0":     "\n### Added\n\n- a line\n",
		"0.1.0-rc1": "\n- a candidate\n",
		"0.2.0":     "",
		"0.1":       "",
		"0.0.9":     "", // a heading alone
	} {
		got, err := exec.Command("./notes", version, path).Output()
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", version, got, err, want)
		}
	}
}
