package main

import (
	"archive/tar"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestImageName reads the name that podman takes from the file: one with a registry, else it puts
// localhost before it and :latest behind.
func TestImageName(t *testing.T) {
	r := release{out: t.TempDir(), work: t.TempDir(), time: time.Unix(1, 0).UTC()}
	if err := r.setVersion("0.1.0-rc1"); err != nil {
		t.Fatal(err)
	}
	if err := r.writeImage([]program{{target: target{"amd64", "x86_64", true}}}); err != nil {
		t.Fatal(err)
	}

	file, err := os.Open(filepath.Join(r.out, "allocscope-0.1.0-rc1-image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for archive := tar.NewReader(file); ; {
		header, err := archive.Next()
		if err != nil {
			t.Fatal("no index.json:", err)
		}
		if header.Name != "index.json" {
			continue
		}

		var index struct {
			Manifests []struct{ Annotations map[string]string }
		}
		if err := json.NewDecoder(archive).Decode(&index); err != nil || len(index.Manifests) != 1 {
			t.Fatalf("%d manifests, %v", len(index.Manifests), err)
		}
		got := index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
		if want := "ghcr.io/allocscope/allocscope:0.1.0-rc1"; got != want {
			t.Errorf("name %q, want %q", got, want)
		}
		return
	}
}
