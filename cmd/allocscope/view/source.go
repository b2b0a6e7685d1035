package view

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// processDirectory is the working directory of this process. pprof removes it from the paths of
// sources.
const processDirectory = "/proc/self/cwd/"

// maxSourceBytes is the size up to which pprof reads a source, as a whole.
const maxSourceBytes = 16 << 20

// sourceOff explains why the source view is off.
const sourceOff = `The source view is off, because allocscope view runs as root: it would open any
file that a profile names, and every user of this machine could read it here. Run allocscope view
as the user whose folder it is: it needs no privilege.`

// refuseSource replaces the source page.
func refuseSource(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, sourceOff, http.StatusForbidden)
}

// sourceFiles are the files of the functions of a profile.
func sourceFiles(p *profile.Profile) []string {
	var files []string
	for _, f := range p.Function {
		files = append(files, f.Filename)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// checkedSource lets pprof open the files of a profile if no read of them can block forever: pprof
// does not check files before it opens them.
func checkedSource(pages http.Handler, files []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, file := range files {
			if err := checkSource(file); err != nil {
				http.Error(w, fmt.Sprintf("The source view is off: this profile names %q, %v.",
					file, err), http.StatusForbidden)
				return
			}
		}
		pages.ServeHTTP(w, r)
	})
}

// checkSource checks every file that pprof may open by a name. A file that is missing or
// inaccessible is harmless.
func checkSource(name string) error {
	for _, path := range sourcePaths(name) {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case !info.Mode().IsRegular() && !info.IsDir():
			return fmt.Errorf("and %s is not a regular file", path)
		case info.Size() > maxSourceBytes && !info.IsDir():
			return fmt.Errorf("and %s has %d bytes, more than %d", path, info.Size(),
				maxSourceBytes)
		}
	}
	return nil
}

// sourcePaths are the paths at which pprof looks for a source: its name or, if that is relative,
// the name in the working directory and in its parents.
func sourcePaths(name string) []string {
	name = filepath.Clean(strings.TrimPrefix(strings.TrimPrefix(name, processDirectory), "./"))
	name = strings.TrimPrefix(name, processDirectory) // pprof removes it twice
	if filepath.IsAbs(name) {
		return []string{name}
	}

	dir, err := os.Getwd()
	if err != nil {
		return nil // pprof finds none either
	}

	paths := []string{filepath.Join(dir, name)}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		paths = append(paths, filepath.Join(dir, name))
	}

	return paths
}
