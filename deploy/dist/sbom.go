package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the parts of a program: Go and its modules, as the program itself says, and the
// parts that are not Go.
func (r *release) writeSBOM(p program) error {
	path := filepath.Join(r.work, "sbom.json")
	command := exec.Command("go", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial",
		"-notimestamp", "-std", "-version", r.version.text, "-output", path, p.path)
	command.Dir = filepath.Join(r.root, "deploy/dist")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).
		Decode(&bom); err != nil {
		return err
	}
	bom.Metadata.Timestamp = r.time.Format(time.RFC3339)

	packages, err := r.npmPackages()
	if err != nil {
		return err
	}
	for _, p := range packages {
		url := "pkg:npm/" + p.name + "@" + p.version
		*bom.Components = append(*bom.Components, cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, PackageURL: url, Name: p.name,
			Version:  p.version,
			Licenses: &cyclonedx.Licenses{{Expression: p.licence}},
		})
	}

	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.Encode(&bom); err != nil {
		return err
	}
	return r.write("allocscope-"+r.version.text+".cdx.json", out.Bytes())
}
