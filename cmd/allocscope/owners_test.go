package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
)

func TestOwnersAreNamedByTheUsersRulesFirst(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "mine.rules")
	if err := os.WriteFile(rules, []byte("mine  any  function ^leak_here$\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for owner, flags := range map[string][]string{"mine": {"--owners", rules}, "steps": nil} {
		t.Run(owner, func(t *testing.T) {
			target := startSteps(t)
			c, dir := tracing(t, target, flags...)
			do(target, "leak 1000 96")
			c.signal(syscall.SIGINT)
			c.mustEnd(0)
			var labels []string
			for _, s := range readProfile(t, dir, folder.GrowthFile).Sample {
				labels = append(labels, s.Label["owner"]...)
			}
			if !slices.Contains(labels, owner) {
				t.Errorf("owners %q, want %q", labels, owner)
			}
		})
	}
}
