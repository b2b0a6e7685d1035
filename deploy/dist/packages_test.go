package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestZshFolder looks for the completion where zsh of Debian searches.
func TestZshFolder(t *testing.T) {
	r := release{out: t.TempDir(), work: t.TempDir(), time: time.Unix(1, 0).UTC()}
	var err error
	if r.root, err = filepath.Abs("../.."); err != nil {
		t.Fatal(err)
	}
	if err := r.setVersion("0.1.0"); err != nil {
		t.Fatal(err)
	}

	var files []file
	for _, path := range []string{
		"allocscope", "LICENSE", "THIRD_PARTY_LICENSES", "README.md", "CHANGELOG.md",
		"share/man/man1/allocscope.1", "share/bash-completion/completions/allocscope",
		"share/zsh/site-functions/_allocscope", "share/fish/vendor_completions.d/allocscope.fish",
	} {
		files = append(files, file{path, 0o644, []byte("-")})
	}
	p := program{target: target{"amd64", "x86_64", false}, glibc: "2.34"}
	if err := r.writePackages(p, files); err != nil {
		t.Fatal(err)
	}

	content := output(t, "dpkg-deb", "-c", filepath.Join(r.out, "allocscope_0.1.0_amd64.deb"))
	if !strings.Contains(content, " ./usr/share/zsh/vendor-completions/_allocscope\n") ||
		strings.Contains(content, "site-functions") {
		t.Errorf("the .deb has\n%s", content)
	}
}
