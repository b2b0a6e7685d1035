package view

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	exported "github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/growth"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
)

// driverMu guards pprof's driver, which keeps its flags in globals. The handlers that it makes only
// read them.
var driverMu sync.Mutex

// pprofPages returns the pages of pprof on a profile, by path: "/top". With a base they show the
// difference. Both profiles belong to pprof from then on.
func pprofPages(p, base *profile.Profile) (pages map[string]http.Handler, err error) {
	driverMu.Lock()
	defer driverMu.Unlock()

	restore, err := withoutSettings()
	if err != nil {
		return nil, err
	}
	defer restore()

	// -trim_path keeps pprof from guessing which part of a source's path to remove: see
	// sourcePaths.
	arguments := []string{"-http=localhost:0", "-no_browser", "-trim_path=" + processDirectory}
	if base != nil {
		arguments = append(arguments, "-diff_base=base")
	}

	err = driver.PProf(&driver.Options{
		Flagset:       newFlags(append(arguments, "profile")...),
		Fetch:         fetcher{"profile": p, "base": base},
		Obj:           noTools{},
		Sym:           noSymbols{},
		UI:            silentUI{},
		HTTPTransport: noNetwork{},
		HTTPServer: func(args *driver.HTTPServerArgs) error {
			pages = args.Handlers
			return nil
		},
	})

	return pages, err
}

// withoutSettings points pprof to settings that cannot exist, so that it needs no HOME. pprof
// determines the name of the file once, for all pages, and tries to read it for each page.
func withoutSettings() (restore func(), err error) {
	const variable = "XDG_CONFIG_HOME"
	before, wasSet := os.LookupEnv(variable)
	if err := os.Setenv(variable, os.DevNull); err != nil {
		return nil, err
	}

	return func() {
		if wasSet {
			_ = os.Setenv(variable, before)
		} else {
			_ = os.Unsetenv(variable)
		}
	}, nil
}

// pprofPolicy is the policy of pprof's pages, whose scripts, styles and data are inline. It keeps
// them from loading or sending anything, even if a name in a profile becomes a script.
const pprofPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; " +
	"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// unitName matches the units that may be requested: pprof writes them into the graph's description
// unquoted.
var unitName = regexp.MustCompile(`^[a-zA-Z]*$`)

// noGraph replaces pprof's text where graphviz has failed.
const noGraph = "The graph cannot be drawn: dot of graphviz is not installed, has failed, or has " +
	"taken too long. The other pages need no graphviz; fewer nodes need less time, as with ?n=20."

// checked serves a page of pprof with its policy, for requests that are no injection.
func checked(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !unitName.MatchString(r.URL.Query().Get("unit")) {
			http.Error(w, "The unit is not a word.", http.StatusBadRequest)
			return
		}

		recorded := newRecordedPage()
		page.ServeHTTP(recorded, r)
		w.Header().Set("Content-Security-Policy", pprofPolicy)
		if recorded.status == http.StatusNotImplemented {
			http.Error(w, noGraph, http.StatusNotImplemented)
			return
		}

		if strings.HasPrefix(recorded.header.Get("Content-Type"), "text/html") {
			recorded.header.Set("Content-Type", "text/html; charset=utf-8")
		}

		recorded.send(w)
	})
}

// readProfile reads and sanitizes a profile of the folder.
func readProfile(dir *folder.Folder, name string) (p *profile.Profile, err error) {
	err = dir.ReadFile(name, func(r io.Reader) error {
		p, err = exported.Read(r)
		return err
	})

	switch {
	case err != nil:
		return nil, err
	case len(p.SampleType) == 0:
		return nil, fmt.Errorf("read %s: %w", name,
			errors.New("it is no profile: it has no sample types"))
	}

	sanitize(p)
	return p, nil
}

// buildID matches the build IDs of linkers. pprof makes patterns of file names of them.
var buildID = regexp.MustCompile(`^[0-9a-fA-F]{1,128}$`)

// sanitize removes from a profile all that leads pprof or a browser elsewhere, and makes its names
// readable. Names that pprof writes into the graph's description unquoted
// (internal/graph/dotgraph.go) lose the characters that end a string there and start a link.
func sanitize(p *profile.Profile) {
	p.DocURL = ""
	for _, m := range p.Mapping {
		m.File = unquoted(m.File)
		if !buildID.MatchString(m.BuildID) {
			m.BuildID = ""
		}
	}

	for _, f := range p.Function {
		f.Name, f.SystemName = readable(f.Name), readable(f.SystemName)
		f.Filename = readable(f.Filename)
	}

	for i, text := range p.Comments {
		p.Comments[i] = readable(text)
	}

	p.DefaultSampleType = unquoted(p.DefaultSampleType)
	for _, t := range p.SampleType {
		t.Type, t.Unit = unquoted(t.Type), unquoted(t.Unit)
	}

	for _, s := range p.Sample {
		s.Label = unquotedLabels(s.Label)
	}
}

// maxNameBytes of a name are kept: graphviz draws nothing if one is too wide.
const maxNameBytes = 2000

// readable shortens a text and replaces unprintable characters: graphviz stops at a NUL, and
// bidirectional formatting characters reorder the text after them.
func readable(text string) string {
	if len(text) > maxNameBytes {
		text = text[:maxNameBytes] + "..."
	}
	return growth.Printable(text)
}

var quotes = strings.NewReplacer(`"`, `'`, `\`, `/`)

func unquoted(text string) string { return quotes.Replace(readable(text)) }

func unquotedLabels(labels map[string][]string) map[string][]string {
	safe := make(map[string][]string, len(labels))
	for key, values := range labels {
		for i, text := range values {
			values[i] = unquoted(text)
		}
		safe[unquoted(key)] = values
	}
	return safe
}

var errOff = errors.New("off in allocscope view")

// flags are the command line of pprof.
type flags struct {
	*flag.FlagSet
	arguments []string
}

func newFlags(arguments ...string) flags {
	set := flag.NewFlagSet("pprof", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	return flags{set, arguments}
}

// StringList implements driver.FlagSet.
func (f flags) StringList(name, _, usage string) *[]*string {
	list := new([]*string)
	f.Func(name, usage, func(value string) error {
		*list = append(*list, &value)
		return nil
	})
	return list
}

// ExtraUsage implements driver.FlagSet.
func (f flags) ExtraUsage() string { return "" }

// AddExtraUsage implements driver.FlagSet.
func (f flags) AddExtraUsage(string) {}

// Parse implements driver.FlagSet.
func (f flags) Parse(func()) []string {
	if f.FlagSet.Parse(f.arguments) != nil {
		return nil
	}
	return f.Args()
}

// fetcher has the profiles that were read, by their names on the command line. pprof reads no file
// itself.
type fetcher map[string]*profile.Profile

// Fetch implements driver.Fetcher.
func (f fetcher) Fetch(name string, _, _ time.Duration) (*profile.Profile, string, error) {
	if p := f[name]; p != nil {
		return p, "", nil
	}
	return nil, "", errOff
}

// noNetwork keeps pprof from fetching profiles.
type noNetwork struct{}

// RoundTrip implements http.RoundTripper.
func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOff }

// noTools keeps pprof from opening the files that mappings name, and from running objdump and its
// like on them.
type noTools struct{}

// Open implements driver.ObjTool.
func (noTools) Open(string, uint64, uint64, uint64, string) (driver.ObjFile, error) {
	return nil, errOff
}

// Disasm implements driver.ObjTool.
func (noTools) Disasm(string, uint64, uint64, bool) ([]driver.Inst, error) { return nil, errOff }

// noSymbols leaves profiles as they are: allocscope has named their functions.
type noSymbols struct{}

// Symbolize implements driver.Symbolizer.
func (noSymbols) Symbolize(string, driver.MappingSources, *profile.Profile) error { return nil }

// silentUI is a terminal without output: pprof's pages show its errors, too.
type silentUI struct{}

// ReadLine implements driver.UI.
func (silentUI) ReadLine(string) (string, error) { return "", io.EOF }

// Print implements driver.UI.
func (silentUI) Print(...any) {}

// PrintErr implements driver.UI.
func (silentUI) PrintErr(...any) {}

// IsTerminal implements driver.UI.
func (silentUI) IsTerminal() bool { return false }

// WantBrowser implements driver.UI.
func (silentUI) WantBrowser() bool { return false }

// SetAutoComplete implements driver.UI.
func (silentUI) SetAutoComplete(func(string) string) {}
