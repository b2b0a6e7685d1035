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

// processDirectory is the working directory of this process; pprof takes it off the paths of sources.
const processDirectory = "/proc/self/cwd/"

// largestSource is the size of a file up to which it is read, whole, to be shown, in bytes.
const largestSource = 16 << 20

// sourceOff says why nobody is shown any source.
const sourceOff = `The source view is off, because allocscope view runs as root: it opens whatever file a profile names, and every
user of this machine could read that here. Run allocscope view as the user whose folder it is: it needs no privilege.`

// refuseSource is the page in place of sources.
func refuseSource(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, sourceOff, http.StatusForbidden)
}

// sourceFiles are the files in which a profile says that its functions are.
func sourceFiles(p *profile.Profile) []string {
	var files []string
	for _, f := range p.Function {
		files = append(files, f.Filename)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// checkedSource lets pprof open the files of a profile if none of them would keep it for ever: it does not look what it opens.
func checkedSource(pages http.Handler, files []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, file := range files {
			if err := checkSource(file); err != nil {
				http.Error(w, fmt.Sprintf("The source view is off: this profile names %q, %v.", file, err), http.StatusForbidden)
				return
			}
		}
		pages.ServeHTTP(w, r)
	})
}

// checkSource looks at every file that pprof may open by a name. One that is not there, or cannot be looked at, is well.
func checkSource(name string) error {
	for _, path := range sourcePaths(name) {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case !info.Mode().IsRegular() && !info.IsDir():
			return fmt.Errorf("and %s is not a regular file", path)
		case info.Size() > largestSource && !info.IsDir():
			return fmt.Errorf("and %s has %d bytes, more than %d", path, info.Size(), largestSource)
		}
	}
	return nil
}

// sourcePaths are where pprof looks for a source: as it is named or, if that is relative, in the working directory and above.
func sourcePaths(name string) []string {
	name = filepath.Clean(strings.TrimPrefix(strings.TrimPrefix(name, processDirectory), "./"))
	name = strings.TrimPrefix(name, processDirectory) // once when it tidies the name up, once when it opens the file
	if filepath.IsAbs(name) {
		return []string{name}
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil // nor does pprof know where to look
	}
	paths := []string{filepath.Join(dir, name)}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}
