package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

func main() {
	var r release
	var text string
	var seconds int64
	flag.StringVar(&r.root, "root", "../..", "`folder` of the project")
	flag.StringVar(&r.out, "out", "../../dist", "`folder` of the files; its files are replaced")
	flag.StringVar(&text, "version", "", "`version` by git describe, without v")
	flag.StringVar(&r.commit, "commit", "", "`commit` that is built")
	flag.Int64Var(&seconds, "time", 0, "time of the commit, in `seconds` since 1970")
	flag.Parse()

	r.time = time.Unix(seconds, 0).UTC()
	err := r.setVersion(text)
	if err == nil {
		err = r.writeAll()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// A release has the data that the files are made of.
type release struct {
	root, out string
	version   version
	commit    string
	time      time.Time // of the commit, and of all files
	work      string    // folder of temporary files

	licences []byte // of the code of others that the program has
	share    []file // manual pages and completions, below share
}

// A file is a file of an archive.
type file struct {
	path string // with slashes, relative
	mode fs.FileMode
	data []byte
}

// writeAll writes all files.
func (r *release) writeAll() (err error) {
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "allocscope-dist-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}

	say("collect the licences of what the program has in it")
	if r.licences, err = r.thirdPartyLicences(); err != nil {
		return err
	}
	say("make manual pages and completions")
	if r.share, err = r.makeShare(); err != nil {
		return err
	}

	var programs []program
	for _, t := range targets {
		say("build " + t.String() + ", and its archive, wheel and packages")
		p, err := r.build(t)
		if err != nil {
			return fmt.Errorf("build %s: %w", t, err)
		}
		if err := r.pack(p); err != nil {
			return fmt.Errorf("pack %s: %w", t, err)
		}
		programs = append(programs, p)
	}

	say("write the image, the list of parts (SBOM) and the checksums")
	if err := r.writeImage(programs); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	if err := r.writeSBOM(programs[0]); err != nil {
		return fmt.Errorf("write the SBOM: %w", err)
	}
	return r.writeSums()
}

// say shows the next step: each takes a minute or more where Go has to compile.
func say(step string) { fmt.Fprintln(os.Stderr, "make dist:", step) }

// pack writes the files that have one program.
func (r *release) pack(p program) error {
	files, err := r.contents(p)
	if err != nil {
		return err
	}
	if err := r.writeTarball(p, files); err != nil {
		return err
	}
	if err := r.writeWheel(p, files); err != nil {
		return err
	}
	if p.isStatic {
		return nil
	}
	return r.writePackages(p, files)
}

// contents are the files that each archive has, by their paths in the tarball.
func (r *release) contents(p program) ([]file, error) {
	files := []file{
		{"allocscope", 0o755, p.data},
		{"THIRD_PARTY_LICENSES", 0o644, r.licences},
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, data})
	}
	return append(files, r.share...), nil
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}
