package view

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	exported "github.com/allocscope/allocscope/export/profile"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestHostileFolder(t *testing.T) {
	t.Run("unreadable profile", testUnreadable)
	t.Run("endless profile", testEndless)
	t.Run("no profile", testNoProfile)
	t.Run("hostile names", testHostileNames)
	t.Run("mappings", testMappings)
	t.Run("links in the graph", testGraphLinks)
}

// replace puts something else in the place of a file.
func replace(t *testing.T, path string, put func(path string) error) {
	t.Helper()
	must(t, errors.Join(os.Remove(path), put(path)))
}

func written(data string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(data), 0o600) }
}

func testUnreadable(t *testing.T) {
	for name, put := range map[string]func(string) error{
		"is missing":      func(string) error { return nil },
		"is empty":        written(""),
		"is no profile":   written("not a profile"),
		"is cut off":      cutOff,
		"is a link":       func(path string) error { return os.Symlink("/etc/hostname", path) },
		"is a named pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"is a directory":  func(path string) error { return os.Mkdir(path, 0o700) },
		"is an empty one": func(path string) error {
			return writeProfile(path, &profile.Profile{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, dir := trace(t)
			replace(t, filepath.Join(path, folder.WarmupFile), put)
			replace(t, filepath.Join(path, folder.SnapshotFile(7)), put)
			server := serve(t, dir, true)

			for _, page := range []string{"/warmup/top", "/diff/top", "/snapshots/7/top"} {
				mustAnswer(t, server.URL+page, http.StatusNotFound, "cannot be shown", ".pb.gz")
			}

			mustGet(t, server.URL+"/growth/top", "growth_big")
			mustGet(t, server.URL+"/snapshots/0/top", "first_big")
			mustGet(t, server.URL+"/", `href="growth/top"`, "read warmup.pb.gz: ")
		})
	}
}

// cutOff writes the first half of a profile.
func cutOff(path string) error {
	var whole strings.Builder
	if err := profiled(held("half", 1<<20))(&whole); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(whole.String()[:whole.Len()/2]), 0o600)
}

func writeProfile(path string, p *profile.Profile) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(file), file.Close())
}

func testEndless(t *testing.T) {
	var piece bytes.Buffer
	packed := gzip.NewWriter(&piece)
	if _, err := packed.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}

	must(t, packed.Close())

	path, dir := trace(t)
	replace(t, filepath.Join(path, folder.GrowthFile), written(strings.Repeat(piece.String(), 129)))
	if _, err := readProfile(dir, folder.GrowthFile); err == nil ||
		!strings.Contains(err.Error(), "larger than 33554432 bytes") {
		t.Errorf("error %v", err)
	}
}

func testNoProfile(t *testing.T) {
	path, dir := trace(t)
	for _, name := range []string{folder.GrowthFile, folder.WarmupFile, folder.PlateauFile} {
		replace(t, filepath.Join(path, name), func(string) error { return nil })
	}

	_, err := New(dir, true)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(),
		"growth.pb.gz: no such file") {
		t.Errorf("error %v", err)
	}
}

// hostile names end a string or an element of a page, or are too long for it.
var hostile = []string{
	`</script><script>document.title="caught"</script>`, `<img src=x onerror=alert(1)>`,
	`"; alert(1); "`, `{{.}}`, "\u202etxt.exe", "\xff\xfe",
	strings.Repeat("long", 2500), "a\nb\x00c", `</title><b>`, "%s%n",
}

func testHostileNames(t *testing.T) {
	_, dir := trace(t)
	var holdings []growth.Holding
	for i, name := range hostile {
		holdings = append(holdings, growth.Holding{
			Stack: &growth.Stack{ID: uint64(i + 1), Frames: []growth.Frame{frame(name, name, i+1)}},
			Kind:  growth.KindHeap, InuseBytes: 1 << 20,
			ResidentBytes: 1 << 20, InuseObjects: 1,
		})
	}

	info := exported.Info{Interval: 1, Executable: hostile[0], Comments: hostile}
	if err := dir.WriteFile(folder.GrowthFile,
		func(w io.Writer) error { return exported.Write(w, holdings, info) }); err != nil {
		t.Fatal(err)
	}

	sum := summary.Summary{
		Process: summary.Process{Command: hostile[0]},
		Verdict: summary.Verdict{Class: verdict.Class(hostile[1]), WhyCode: verdict.Reason(hostile[0])},
	}

	must(t, dir.WriteFile(folder.SummaryFile, sum.Write))

	server := serve(t, dir, true)
	for _, page := range []string{
		"/", "/growth/top", "/growth/flamegraph", "/growth/peek?f=.",
		"/growth/source?f=.", "/growth/graph",
	} {
		mustNotSay(t, page, mustGet(t, server.URL+page), "<script>document.title", "<img src=x", "</title><b>", "\u202e",
			"\x00", `\u0000`)
	}
}

func testMappings(t *testing.T) {
	path, dir := trace(t)
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "space", Unit: "bytes"}},
		Mapping: []*profile.Mapping{
			{ID: 1, File: "/bin/true", BuildID: "../../*/*/*"},
			{ID: 2, File: "/bin/true", BuildID: "C0ffee"},
		},
		DocURL: "http://evil.example/",
	}

	replace(t, filepath.Join(path, folder.GrowthFile),
		func(path string) error { return writeProfile(path, p) })
	got := tracertest.Must(readProfile(dir, folder.GrowthFile))(t)

	if got.Mapping[0].BuildID != "" || got.Mapping[1].BuildID != "C0ffee" || got.DocURL != "" {
		t.Errorf("%q, %q, %q", got.Mapping[0].BuildID, got.Mapping[1].BuildID, got.DocURL)
	}

	server := serve(t, dir, true)
	mustNotSay(t, "top", mustGet(t, server.URL+"/growth/top"), "evil.example")
}

// injection would end a quoted string of the graph's description, and begin a link that runs a
// script.
const injection = `x" URL="javascript:alert(1)`

func testGraphLinks(t *testing.T) {
	path, dir := trace(t)
	main := &profile.Mapping{ID: 1, File: "/bin/" + injection}
	leak := &profile.Function{ID: 1, Name: injection, Filename: injection}
	at := &profile.Location{ID: 1, Mapping: main, Line: []profile.Line{{Function: leak, Line: 1}}}

	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: injection, Unit: injection}},
		Mapping:    []*profile.Mapping{main}, Function: []*profile.Function{leak},
		Location: []*profile.Location{at},
		Sample: []*profile.Sample{{
			Location: []*profile.Location{at}, Value: []int64{1 << 20},
			Label:    map[string][]string{injection: {injection}},
			NumLabel: map[string][]int64{injection: {7}},
			NumUnit:  map[string][]string{injection: {injection}},
		}},
	}

	replace(t, filepath.Join(path, folder.GrowthFile),
		func(path string) error { return writeProfile(path, p) })
	server := serve(t, dir, true)
	body := mustGet(t, server.URL+"/growth/graph", "<svg", "javascript:alert(1)")
	mustNotSay(t, "the graph", body, `href="javascript:`)
	asked := "/plateau/graph?si=alloc_objects&unit=" + url.QueryEscape(injection)
	mustAnswer(t, server.URL+asked, http.StatusBadRequest)
}
