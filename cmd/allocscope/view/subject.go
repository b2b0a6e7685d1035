package view

import (
	"fmt"
	"net/http"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
)

// A subject is what pprof shows: a profile, or what it holds more than a base.
type subject struct {
	// Path of its pages, without slashes around it: "growth", "snapshots/3".
	Path string
	// Title and About for people: "growth", "snapshot 3".
	Title, About string
	// File of the folder, and the Base that is taken off; empty: none.
	File, Base string
}

// The subjects of every trace.
var subjects = []subject{
	{"growth", "growth", "what accumulated: alive at the end minus alive at the boundary", folder.GrowthFile, ""},
	{"warmup", "warm-up", "alive at the boundary", folder.WarmupFile, ""},
	{"plateau", "plateau", "alive at the end", folder.PlateauFile, ""},
	{"diff", "difference", "plateau compared with warm-up: what grew, and what shrank", folder.PlateauFile, folder.WarmupFile},
}

// Pages are those of one subject by their names, "top"; "" leads to one of them.
type pages map[string]http.Handler

// ServeHTTP serves the page that the path names.
func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if page := p[r.PathValue("page")]; page != nil {
		page.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

// open reads the profiles of a subject and makes its pages. Without source, the page that shows files of the target says why not.
func (s subject) open(folder *folder.Folder, source bool) (pages, error) {
	p, err := readProfile(folder, s.File)
	if err != nil {
		return nil, err
	}
	files := sourceFiles(p)
	var base *pprof.Profile
	if s.Base != "" {
		if base, err = readProfile(folder, s.Base); err != nil {
			return nil, err
		}
		files = append(files, sourceFiles(base)...)
	}
	made, err := pprofPages(p, base)
	if err != nil {
		return nil, fmt.Errorf("show %s: %w", s.File, err)
	}
	shown := pages{"": made["/"], "download": made["/download"], "source": http.HandlerFunc(refuseSource)}
	for _, name := range []string{"top", "graph", "flamegraph", "peek"} { // and not disasm, saveconfig, deleteconfig
		shown[name] = s.dressed(made["/"+name], source)
	}
	if source {
		shown["source"] = checkedSource(s.dressed(made["/source"], source), files)
	}
	return shown, nil
}

// failed is shown in place of the pages of a subject that could not be opened.
func failed(err error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "This profile cannot be shown: "+err.Error(), http.StatusNotFound)
	}
}
