// Package view serves the folder of a trace as web pages: its report, and pprof's own pages on each
// of its profiles. The folder and the names in its profiles are hostile. The package writes
// nothing, and opens no file but the files of the folder and, if that is allowed, the sources that
// a profile names.
package view

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/google/pprof/profile"
)

// New reads the profiles of a folder and returns the pages about them. The index names profiles
// that cannot be read; it is an error if all of them are such. With source, pprof shows the files
// that a profile names, as far as this process may read them.
//
// pprof's driver keeps its settings in globals, and reads XDG_CONFIG_HOME, which is changed while
// profiles are opened.
func New(dir *folder.Folder, source bool) (http.Handler, error) {
	mux := http.NewServeMux()
	index := &index{folder: dir, source: source}
	var errs []error

	for _, ref := range profileRefs {
		var pages http.Handler
		pages, err := ref.open(dir, source)
		if err != nil {
			errs = append(errs, err)
			pages = notShown(err)
		}
		handlePages(mux, "/"+ref.Path, pages)
		index.entries = append(index.entries, entry{ref, err})
	}

	if len(errs) == len(profileRefs) {
		return nil, fmt.Errorf("view %s: %w", dir.Path(), errs[0])
	}

	handlePages(mux, "/snapshots/{number}", &snapshots{folder: dir, source: source})
	mux.HandleFunc("/report", func(w http.ResponseWriter, _ *http.Request) {
		serveReport(w, dir)
	})
	mux.HandleFunc("/gpu/{file}", func(w http.ResponseWriter, r *http.Request) {
		serveGPUSnapshot(w, dir, r.PathValue("file"))
	})
	mux.Handle("/{$}", index)
	return mux, nil
}

func handlePages(mux *http.ServeMux, path string, pages http.Handler) {
	mux.Handle(path+"/{$}", toIndex)
	mux.Handle(path+"/{page}", pages)
}

// toIndex leads from the start page of a profile to the index, which is where pprof's brand links
// to.
var toIndex = http.RedirectHandler("/", http.StatusFound)

// profileRef is a profile that pprof shows, or its difference to a base.
type profileRef struct {
	// Path of its pages, without slashes around it: "growth", "snapshots/3".
	Path string
	// Title and About for people: "growth", "snapshot 3".
	Title, About string
	// File of the folder, and the Base that is subtracted; empty: none.
	File, Base string
}

// profileRefs are the profiles of every trace, but for its snapshots.
var profileRefs = []profileRef{
	{
		"growth",
		"growth",
		"what accumulated: alive at the end minus alive at the baseline",
		folder.GrowthFile,
		"",
	},
	{"warmup", "warm-up", "alive at the baseline", folder.WarmupFile, ""},
	{"plateau", "plateau", "alive at the end", folder.PlateauFile, ""},
	{
		"diff", "difference", "plateau compared with warm-up: what grew, and what shrank",
		folder.PlateauFile, folder.WarmupFile,
	},
}

func snapshotRef(number int) profileRef {
	n := strconv.Itoa(number)
	return profileRef{
		Path:  "snapshots/" + n,
		Title: "snapshot " + n,
		File:  folder.SnapshotFile(number),
	}
}

func (ref profileRef) text() string {
	if ref.About == "" {
		return ref.Title
	}
	return ref.Title + ": " + ref.About
}

// open reads the files of a profile and makes its pages. Without source, the source page shows why
// it is off.
func (ref profileRef) open(dir *folder.Folder, source bool) (pages, error) {
	p, err := readProfile(dir, ref.File)
	if err != nil {
		return nil, err
	}

	p.Comments = slices.Insert(p.Comments, 0, ref.text()) // pprof shows them as details of the page
	files := sourceFiles(p)

	var base *profile.Profile
	if ref.Base != "" {
		if base, err = readProfile(dir, ref.Base); err != nil {
			return nil, err
		}
		files = append(files, sourceFiles(base)...)
	}

	ofPprof, err := pprofPages(p, base)
	if err != nil {
		return nil, fmt.Errorf("show %s: %w", ref.File, err)
	}

	shown := pages{"download": ofPprof["/download"], "source": http.HandlerFunc(refuseSource)}
	for _, name := range []string{"top", "graph", "flamegraph", "peek"} {
		shown[name] = checked(ofPprof["/"+name])
	}

	if source {
		shown["source"] = checkedSource(checked(ofPprof["/source"]), files)
	}

	return shown, nil
}

// notShown replaces the pages of a profile that could not be opened.
func notShown(err error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "This profile cannot be shown: "+err.Error(), http.StatusNotFound)
	}
}

// pages of a profile, by name: "top". Pages of pprof that write files or run disassemblers are not
// among them.
type pages map[string]http.Handler

// ServeHTTP serves the page that the path names.
func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if page := p[r.PathValue("page")]; page != nil {
		page.ServeHTTP(w, r)
		return
	}
	http.Error(w, "allocscope view has no such page.", http.StatusNotFound)
}

// maxOpenSnapshots bounds how many snapshots are kept in memory.
const maxOpenSnapshots = 4

// snapshots are opened when one of their pages is requested.
type snapshots struct {
	folder *folder.Folder
	source bool

	mu   sync.Mutex
	open []openSnapshot // least recently used first
}

type openSnapshot struct {
	number int
	pages  http.Handler
}

// ServeHTTP serves the pages of the snapshot whose number is in the path.
func (s *snapshots) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseUint(r.PathValue("number"), 10, 31)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	s.pagesOf(int(number)).ServeHTTP(w, r)
}

func (s *snapshots) pagesOf(number int) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()

	i := slices.IndexFunc(s.open, func(o openSnapshot) bool { return o.number == number })
	var o openSnapshot
	if i >= 0 {
		o = s.open[i]
		s.open = slices.Delete(s.open, i, i+1)
	} else {
		pages, err := snapshotRef(number).open(s.folder, s.source)
		if err != nil {
			return notShown(err)
		}
		o = openSnapshot{number, pages}
		s.open = slices.Delete(s.open, 0, max(0, len(s.open)-maxOpenSnapshots+1))
	}

	s.open = append(s.open, o)
	return o.pages
}

// reportPolicy is added to the policy of the report itself, which allows its one script and its one
// style. A forged report can read no other page of this site.
const reportPolicy = "sandbox allow-scripts allow-modals allow-downloads; default-src 'none'; " +
	"script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// serveReport serves the report that is in the folder now.
func serveReport(w http.ResponseWriter, dir *folder.Folder) {
	var report []byte
	err := dir.ReadFile(folder.ReportFile, func(r io.Reader) (err error) {
		report, err = io.ReadAll(r)
		return err
	})
	if err != nil {
		http.Error(w, reportMissing(dir, err), http.StatusNotFound)
		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", reportPolicy)
	_, _ = w.Write(report) // the browser may have gone
}

// serveGPUSnapshot serves a file for PyTorch's viewer, to be saved.
func serveGPUSnapshot(w http.ResponseWriter, dir *folder.Folder, name string) {
	names, err := dir.GPUSnapshots()
	if err != nil || !slices.Contains(names, name) {
		http.Error(w, "This folder has no such snapshot of GPU memory.", http.StatusNotFound)
		return
	}

	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment")
	if err := dir.ReadFile(name, func(r io.Reader) error {
		_, _ = io.Copy(w, r) // the browser may have gone
		return nil
	}); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
	}
}

// reportMissing explains why there is no report, and how to make one. It is empty without an error.
func reportMissing(dir *folder.Folder, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "This folder has no report yet. Make it: allocscope report " + dir.Path()
	}
	return "The report cannot be shown: " + err.Error()
}
