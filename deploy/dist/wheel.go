package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"path"
	"strings"
	"text/template"
)

//go:embed METADATA
var metadataText string

var metadata = template.Must(template.New("METADATA").Parse(metadataText))

// platform is the tag that pip compares with the machine: glibc from that version on (PEP 600), or
// musl (PEP 656), which a static program does not need either.
func (p program) platform() string {
	if p.isStatic {
		return "musllinux_1_1_" + p.machine
	}
	return "manylinux_" + strings.ReplaceAll(p.glibc, ".", "_") + "_" + p.machine
}

// writeWheel writes the wheel of a program, which pip installs as a script.
// https://packaging.python.org/en/latest/specifications/binary-distribution-format/
func (r *release) writeWheel(p program, files []file) error {
	tag := "py3-none-" + p.platform()
	name := "allocscope-" + r.version.wheel
	info := name + ".dist-info"

	var text bytes.Buffer
	if err := metadata.Execute(&text, map[string]string{"Version": r.version.wheel}); err != nil {
		return err
	}
	contents := []file{
		{info + "/METADATA", 0o644, text.Bytes()},
		{info + "/WHEEL", 0o644, []byte("Wheel-Version: 1.0\nGenerator: allocscope-dist\n" +
			"Root-Is-Purelib: false\nTag: " + tag + "\n")},
	}
	for _, f := range files {
		switch f.path {
		case "allocscope":
			contents = append(contents, file{name + ".data/scripts/allocscope", f.mode, f.data})
		case "LICENSE", "THIRD_PARTY_LICENSES":
			contents = append(contents, file{path.Join(info, "licenses", f.path), f.mode, f.data})
		}
	}

	var record strings.Builder
	for _, f := range sorted(contents) {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.path,
			base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%s/RECORD,,\n", info)

	archive, err := r.zip(append(sorted(contents), file{info + "/RECORD", 0o644, []byte(record.String())}))
	if err != nil {
		return err
	}
	return r.write(name+"-"+tag+".whl", archive)
}

// zip returns an archive of files, in their order.
func (r *release) zip(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	for _, f := range files {
		header := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: r.time}
		header.SetMode(f.mode)
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
