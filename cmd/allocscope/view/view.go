// Package view serves the folder of a trace as web pages: its report, and pprof's own pages on each of its profiles. The folder
// and what the profiles name are hostile: nothing is written, and no file is opened but those of the folder and, if that is
// allowed, sources that a profile names.
package view

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/allocscope/allocscope/export/folder"
)

// New reads the profiles of a folder and gives the pages about them. Profiles that cannot be read are named on the index; it is
// an error if there is none that can. With source, pprof shows the files that a profile names, as far as this process may read
// them.
//
// pprof's driver keeps its settings in globals, and reads XDG_CONFIG_HOME, which is another while profiles are opened.
func New(folder *folder.Folder, source bool) (http.Handler, error) {
	mux := http.NewServeMux()
	var errs []error
	i := &index{folder: folder, source: source}
	for _, s := range subjects {
		var shown http.Handler
		shown, err := s.open(folder, source)
		if err != nil {
			errs = append(errs, err)
			shown = failed(err)
		}
		handlePages(mux, "/"+s.Path, shown)
		i.entries = append(i.entries, entry{s, err})
	}
	if len(errs) == len(subjects) {
		return nil, fmt.Errorf("view %s: %w", folder.Path(), errs[0])
	}
	handlePages(mux, "/snapshots/{number}", &snapshots{folder: folder, source: source})
	mux.HandleFunc("/report", func(w http.ResponseWriter, _ *http.Request) { serveReport(w, folder) })
	mux.Handle("/{$}", i)
	return mux, nil
}

func handlePages(mux *http.ServeMux, path string, pages http.Handler) {
	mux.Handle(path+"/{$}", pages)
	mux.Handle(path+"/{page}", pages)
}

// reportPolicy holds besides the policy that the report carries, which names its one script and its one style: the report of a
// folder that is not what it seems can read no other page of this site.
const reportPolicy = "sandbox allow-scripts allow-modals allow-downloads; default-src 'none'; script-src 'unsafe-inline'; " +
	"style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// serveReport serves the report as it is in the folder now.
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

// reportMissing says why there is no report, and how one is made; empty without an error.
func reportMissing(folder *folder.Folder, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "This folder has no report yet. Make it: allocscope report " + folder.Path()
	}
	return "The report cannot be shown: " + err.Error()
}
