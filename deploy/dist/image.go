package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageName is podman's name of the image that it reads from the file, and the place of the image
// in a release.
func (r *release) imageName() string {
	return "ghcr.io/allocscope/allocscope:" + r.version.text
}

// writeImage writes the image of the static programs as an OCI layout in a tar, without a registry
// or a daemon.
func (r *release) writeImage(programs []program) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		if !p.isStatic {
			continue
		}
		image, err := r.image(p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image,
			Descriptor: v1.Descriptor{
				MediaType: types.OCIManifestSchema1,
				Platform:  &v1.Platform{OS: "linux", Architecture: p.arch},
			},
		})
	}

	folder := filepath.Join(r.work, "image")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.imageName(),
	}))
	if err != nil {
		return err
	}
	return r.writeLayout(folder)
}

// image has the program alone, beside the files that it reads: certificates for pushes by HTTPS.
func (r *release) image(p program) (v1.Image, error) {
	var layer bytes.Buffer
	if err := writeTar(&layer, []file{
		{"usr/local/bin/allocscope", 0o755, p.data},
		{"usr/share/doc/allocscope/THIRD_PARTY_LICENSES", 0o644, r.licences},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates()},
	}, r.time); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil }
	added, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}

	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	created := v1.Time{Time: r.time}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: added, History: v1.History{Created: created, CreatedBy: "make dist"},
	})
	if err != nil {
		return nil, err
	}

	config, err := image.ConfigFile() // with the layer
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.arch, created
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/local/bin/allocscope"},
		Env:        []string{"PATH=/usr/local/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "allocscope",
			"org.opencontainers.image.source":   "https://github.com/allocscope/allocscope",
			"org.opencontainers.image.version":  r.version.text,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
		},
	}
	return mutate.ConfigFile(image, config)
}

// certificates are Mozilla's roots, without those that it trusts with conditions.
func certificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			block := pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}
			_ = pem.Encode(&text, &block) // a buffer takes all
		}
	}
	return text.Bytes()
}

// writeLayout writes a folder with an OCI layout as a tar.
func (r *release) writeLayout(folder string) error {
	files, err := filesIn(folder, ".")
	if err != nil {
		return err
	}

	var out bytes.Buffer
	if err := writeTar(&out, files, r.time); err != nil {
		return err
	}
	return r.write("allocscope-"+r.version.text+"-image.tar", out.Bytes())
}
