package view

import (
	"errors"
	"flag"
	"io"
	"net/http"
	"time"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"
)

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

// A fetcher holds profiles that have been read, by the names that the command line calls them. pprof reads no file itself.
type fetcher map[string]*profile.Profile

// Fetch implements driver.Fetcher.
func (f fetcher) Fetch(name string, _, _ time.Duration) (*profile.Profile, string, error) {
	if p := f[name]; p != nil {
		return p, "", nil
	}
	return nil, "", errOff
}

// noNetwork is for pprof, which has nothing to fetch.
type noNetwork struct{}

// RoundTrip implements http.RoundTripper.
func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOff }

// noTools keeps pprof from opening the files that mappings name, and from running objdump and its like on them.
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

// quiet is a terminal that nobody sees: what pprof has to say is on its pages too.
type quiet struct{}

// ReadLine implements driver.UI.
func (quiet) ReadLine(string) (string, error) { return "", io.EOF }

// Print implements driver.UI.
func (quiet) Print(...any) {}

// PrintErr implements driver.UI.
func (quiet) PrintErr(...any) {}

// IsTerminal implements driver.UI.
func (quiet) IsTerminal() bool { return false }

// WantBrowser implements driver.UI.
func (quiet) WantBrowser() bool { return false }

// SetAutoComplete implements driver.UI.
func (quiet) SetAutoComplete(func(string) string) {}
