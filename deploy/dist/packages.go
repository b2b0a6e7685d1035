package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

//go:embed nfpm.yaml
var packageText []byte

// writePackages writes the .deb and the .rpm of a program.
func (r *release) writePackages(p program, files []file) error {
	stage := filepath.Join(r.work, "stage", p.String())
	for _, f := range files {
		path := filepath.Join(stage, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, f.mode); err != nil {
			return err
		}
	}

	variables := map[string]string{
		"ARCH": p.arch, "VERSION": r.version.debian, "GLIBC": p.glibc, "STAGE": stage, "ROOT": r.root,
	}
	for format, name := range map[string]string{
		"deb": fmt.Sprintf("allocscope_%s_%s.deb", r.version.debian, p.arch),
		"rpm": fmt.Sprintf("allocscope-%s-1.%s.rpm", r.version.debian, p.machine),
	} {
		config, err := nfpm.ParseWithEnvMapping(bytes.NewReader(packageText),
			func(name string) string { return variables[name] })
		if err != nil {
			return fmt.Errorf("read nfpm.yaml: %w", err)
		}
		info, err := config.Get(format)
		if err != nil {
			return err
		}
		info = nfpm.WithDefaults(info)
		info.MTime = r.time
		r.fix(info)

		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := packager.Package(info, &out); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := r.write(name, out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// fix sets the properties that would depend on this machine: owners, times and modes of files; and
// makes the paths of the scripts absolute.
func (r *release) fix(info *nfpm.Info) {
	for _, c := range info.Contents {
		mode := os.FileMode(0o644)
		if c.Destination == "/usr/bin/" || c.Type == nfpmfiles.TypeDir {
			mode = 0o755
		}
		c.FileInfo = &nfpmfiles.ContentFileInfo{
			Owner: "root", Group: "root", Mode: mode, MTime: r.time,
		}
	}
	for _, script := range []*string{
		&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove,
	} {
		*script = filepath.Join(r.root, "deploy/dist", *script)
	}
}
