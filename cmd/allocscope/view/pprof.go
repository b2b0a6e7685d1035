package view

import (
	"net/http"
	"os"
	"sync"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"
)

// driving guards pprof's driver, which keeps its flags in globals. The handlers that it makes only read them.
var driving sync.Mutex

// pprofPages makes the pages of pprof on a profile, by path: "/top". With a base they are on the difference. Both profiles
// belong to pprof from then on.
func pprofPages(p, base *profile.Profile) (pages map[string]http.Handler, err error) {
	driving.Lock()
	defer driving.Unlock()
	restore, err := withoutSettings()
	if err != nil {
		return nil, err
	}
	defer restore()
	// -trim_path keeps pprof from guessing which part of a source's path to leave out: see sourcePaths.
	arguments := []string{"-http=localhost:0", "-no_browser", "-trim_path=" + processDirectory}
	if base != nil {
		arguments = append(arguments, "-diff_base=base")
	}
	err = driver.PProf(&driver.Options{
		Flagset:       newFlags(append(arguments, "profile")...),
		Fetch:         fetcher{"profile": p, "base": base},
		Obj:           noTools{},
		Sym:           noSymbols{},
		UI:            quiet{},
		HTTPTransport: noNetwork{},
		HTTPServer: func(args *driver.HTTPServerArgs) error {
			pages = args.Handlers
			return nil
		},
	})
	return pages, err
}

// withoutSettings makes pprof look for its settings where no file can be, and needs no HOME. It names the file once, for all
// pages, and tries to read it for each.
func withoutSettings() (restore func(), err error) {
	const variable = "XDG_CONFIG_HOME"
	before, was := os.LookupEnv(variable)
	if err := os.Setenv(variable, os.DevNull); err != nil {
		return nil, err
	}
	return func() {
		if was {
			_ = os.Setenv(variable, before)
		} else {
			_ = os.Unsetenv(variable)
		}
	}, nil
}
