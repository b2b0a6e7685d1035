package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A part is the code of others in the programs, and the folders of its licences.
type part struct {
	name    string // with its version
	folders []string
}

// licenceFile matches the names of files with a licence or texts that it asks to be passed on.
var licenceFile = regexp.MustCompile(`(?i)(^|[-_.])(licen[cs]e|copying|notice|patents)([-_.]|$)`)

// thirdPartyLicences returns the licences of all that the programs have of others, in one text. It is
// an error if a part has none.
func (r *release) thirdPartyLicences() ([]byte, error) {
	goRoot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	parts := []part{
		{"Go, its standard library and its runtime", []string{strings.TrimSpace(string(goRoot))}},
		{"libbpf, its headers in the BPF objects", []string{filepath.Join(r.root, "bpf/headers")}},
	}
	modules, err := r.modules()
	if err != nil {
		return nil, fmt.Errorf("list the modules: %w", err)
	}
	packages, err := r.npmPackages()
	if err != nil {
		return nil, fmt.Errorf("list the npm packages: %w", err)
	}
	parts = append(parts, modules...)
	for _, p := range packages {
		parts = append(parts, part{p.String() + " (npm)", []string{p.folder}})
	}

	var text bytes.Buffer
	fmt.Fprintf(&text, "allocscope contains code of others, under these licences. Its own is in LICENSE.\n")
	var missing []error
	for _, p := range parts {
		found, err := p.write(&text)
		if err != nil {
			return nil, err
		}
		if !found {
			missing = append(missing, fmt.Errorf("%s has no file with its licence", p.name))
		}
	}
	return text.Bytes(), errors.Join(missing...)
}

// write writes the licences of a part, and returns whether there is one.
func (p part) write(out io.Writer) (found bool, err error) {
	fmt.Fprintf(out, "\n%s\n%s\n", strings.Repeat("=", 78), p.name)
	for _, folder := range p.folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return false, err
		}
		for _, entry := range entries {
			isCode := strings.HasSuffix(entry.Name(), ".go")
			if entry.IsDir() || isCode || !licenceFile.MatchString(entry.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
			if err != nil {
				return false, err
			}
			fmt.Fprintf(out, "%s\n%s:\n\n%s\n", strings.Repeat("-", 78), entry.Name(),
				bytes.TrimSpace(text))
			found = true
		}
	}
	return found, nil
}

// modules returns the modules of the packages that a program of a target has, with the folders of
// these packages and those above them.
func (r *release) modules() ([]part, error) {
	folders := make(map[string]map[string]bool) // by module and version
	for _, t := range targets {
		if t.isStatic {
			continue // it has fewer
		}
		list := exec.Command("go", "list", "-deps", "-json=Dir,Module", "./cmd/allocscope")
		list.Dir = r.root
		list.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+t.arch, "CGO_ENABLED=1", "GOFLAGS=")
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, err
		}

		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				Dir    string
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Module == nil || p.Module.Main {
				continue
			}

			name := p.Module.Path + " " + p.Module.Version
			if folders[name] == nil {
				folders[name] = map[string]bool{p.Module.Dir: true}
			}
			for folder := p.Dir; folder != p.Module.Dir; folder = filepath.Dir(folder) {
				folders[name][folder] = true
			}
		}
	}

	var parts []part
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		parts = append(parts, part{name, slices.Sorted(maps.Keys(folders[name]))})
	}
	return parts, nil
}

// An npmPackage is one that the pages' script has.
type npmPackage struct{ name, version, licence, folder string }

func (p npmPackage) String() string { return p.name + " " + p.version }

// npmPackages returns the npm packages that are neither of the build alone nor of its machine.
func (r *release) npmPackages() (found []npmPackage, err error) {
	web := filepath.Join(r.root, "export/page/web")
	text, err := os.ReadFile(filepath.Join(web, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version, License string
			Dev, Optional    bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, err
	}

	for _, folder := range slices.Sorted(maps.Keys(lock.Packages)) {
		p := lock.Packages[folder]
		if folder != "" && !p.Dev && !p.Optional {
			name := folder[strings.LastIndex(folder, "node_modules/")+len("node_modules/"):]
			found = append(found, npmPackage{name, p.Version, p.License, filepath.Join(web, folder)})
		}
	}
	return found, nil
}
