package view

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	exported "github.com/allocscope/allocscope/export/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestIndex(t *testing.T) {
	t.Run("links", testIndex)
	t.Run("no summary", testNoSummary)
}

func TestPprof(t *testing.T) {
	t.Run("numbers of go tool pprof", testNumbers)
	t.Run("all pages at once", testConcurrent)
	t.Run("links", testLinks)
	t.Run("pages that write or run tools", testAbsentPages)
	t.Run("graph", testGraph)
	t.Run("settings", testSettings)
	t.Run("no HOME", testNoHome)
	t.Run("open snapshots", testOpenSnapshots)
}

var module = &growth.Module{
	Path: "/opt/job/trainer", BuildID: "c0ffee", Start: 0x400000,
	Limit: 0x500000,
}

func frame(function, file string, line int) growth.Frame {
	return growth.Frame{
		Function: function, File: file, Line: line, Module: module,
		Address: 0x400000 + uint64(line),
	}
}

// held are holdings of so many bytes by two stacks, whose functions begin with the name.
func held(name string, bytes int64) []growth.Holding {
	holding := func(leaf string, bytes int64) growth.Holding {
		return growth.Holding{
			Stack: &growth.Stack{Frames: []growth.Frame{
				frame(name+"_"+leaf, "/src/"+name+".c", 10+len(leaf)), frame(name+"_main", "/src/"+
					name+".c", 40),
			}},
			Kind: growth.KindHeap, InuseObjects: 2, InuseBytes: bytes, ResidentBytes: bytes,
			AllocObjects: 4, AllocBytes: float64(2 * bytes),
		}
	}
	return []growth.Holding{holding("big", bytes), holding("little", bytes/3)}
}

func profiled(holdings []growth.Holding) func(io.Writer) error {
	return func(w io.Writer) error {
		return exported.Write(w, holdings, exported.Info{Interval: 1})
	}
}

// trace writes the folder of a trace: three profiles with functions of their own and one in common,
// two snapshots, a summary.
func trace(t *testing.T) (path string, dir *folder.Folder) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "out")
	dir, err := folder.Create(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()},
		false)
	must(t, err)

	t.Cleanup(func() { _ = dir.Close() })
	rate := 3e6
	sum := summary.Summary{
		Process: summary.Process{PID: 4242, Command: "train <er>"},
		Verdict: summary.Verdict{
			Class: verdict.ClassLeak, WhyCode: "steady growth",
			Rate: &rate,
		},
		SnapshotsS: []float64{0, 90},
	}

	for name, write := range map[string]func(io.Writer) error{
		folder.SummaryFile:     sum.Write,
		folder.GrowthFile:      profiled(held("growth", 3<<20)),
		folder.WarmupFile:      profiled(append(held("warmup", 5<<20), held("both", 1<<20)...)),
		folder.PlateauFile:     profiled(append(held("plateau", 7<<20), held("both", 4<<20)...)),
		folder.SnapshotFile(0): profiled(held("first", 1<<20)),
		folder.SnapshotFile(7): profiled(held("seventh", 2<<20)),
	} {
		must(t, dir.WriteFile(name, write))
	}

	return path, dir
}

// serve serves the pages of a folder.
func serve(t *testing.T, dir *folder.Folder, source bool) *httptest.Server {
	t.Helper()
	pages := tracertest.Must(New(dir, source))(t)
	server := httptest.NewServer(pages)
	t.Cleanup(server.Close)
	return server
}

// served serves the folder of a trace.
func served(t *testing.T) (path string, server *httptest.Server) {
	t.Helper()
	path, dir := trace(t)
	return path, serve(t, dir, true)
}

// get gets a page.
func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	response := tracertest.Must(http.Get(url))(t)
	defer response.Body.Close()
	data := tracertest.Must(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(data), response.Header
}

// mustGet gets a page that is there and says the words.
func mustGet(t *testing.T, url string, words ...string) string {
	t.Helper()
	return mustAnswer(t, url, http.StatusOK, words...)
}

// mustAnswer gets a page that has that status and says the words.
func mustAnswer(t *testing.T, url string, want int, words ...string) string {
	t.Helper()
	status, body, _ := get(t, url)
	if status != want {
		t.Fatalf("%s: status %d, want %d: %s", url, status, want, beginning(body))
	}
	mustSay(t, url, body, words...)
	return body
}

// put writes a text to a file.
func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

var must = tracertest.NoError

var mustSay = tracertest.MustSay

func mustNotSay(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(text, word) {
			t.Errorf("%s says %q", where, word)
		}
	}
}

func beginning(text string) string { return fmt.Sprintf("%.2000s", text) }

func testIndex(t *testing.T) {
	path, server := served(t)
	body := mustGet(t, server.URL+"/",
		"<title>allocscope: train &lt;er&gt;</title>", "PID 4242", "LEAK",
		"2.86 MiB/min", "verdict-leak",
		"allocscope report "+path, `<a href="snapshots/0/flamegraph">0s</a>`,
		`<a href="snapshots/7/flamegraph">1m30s</a>`)

	for _, l := range link.FindAllStringSubmatch(body, -1) {
		mustGet(t, server.URL+"/"+l[1])
	}
}

func testNoSummary(t *testing.T) {
	path, dir := trace(t)
	replace(t, filepath.Join(path, folder.SummaryFile), written(`{"schema": "other/1"}`))
	server := serve(t, dir, true)
	mustGet(t, server.URL+"/", "other/1", `href="growth/top"`, ">number 7<")
}

func TestServedReport(t *testing.T) {
	path, server := served(t)
	mustAnswer(t, server.URL+"/report", http.StatusNotFound)

	const report = "<!doctype html><p>the report"
	put(t, filepath.Join(path, folder.ReportFile), report)
	status, body, header := get(t, server.URL+"/report")
	if status != http.StatusOK || body != report ||
		header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("status %d, %v: %s", status, header, body)
	}

	mustSay(t, "the policy", header.Get("Content-Security-Policy"), "sandbox allow-scripts",
		"default-src 'none'")
	mustNotSay(t, "the policy", header.Get("Content-Security-Policy"), "allow-same-origin")
	mustNotSay(t, "the index", mustGet(t, server.URL+"/", `href="report"`), "allocscope report ")
}

func TestServedGPUSnapshot(t *testing.T) {
	path, server := served(t)
	name := folder.GPUSnapshotFile(42)
	mustNotSay(t, "the index", mustGet(t, server.URL+"/"), `href="gpu/`)
	mustAnswer(t, server.URL+"/gpu/"+name, http.StatusNotFound)

	put(t, filepath.Join(path, name), "<script>")
	mustGet(t, server.URL+"/", `href="gpu/`+name+`"`)
	status, body, header := get(t, server.URL+"/gpu/"+name)
	if status != http.StatusOK || body != "<script>" ||
		header.Get("Content-Type") != "application/octet-stream" ||
		header.Get("Content-Disposition") != "attachment" {
		t.Errorf("status %d, %v: %s", status, header, body)
	}
	mustAnswer(t, server.URL+"/gpu/"+folder.SummaryFile, http.StatusNotFound)
}

func testSettings(t *testing.T) {
	for _, variable := range []string{"XDG_CONFIG_HOME", "HOME"} {
		t.Run(variable, func(t *testing.T) {
			home := t.TempDir()
			for _, dir := range []string{home, filepath.Join(home, ".config")} {
				must(t, os.MkdirAll(filepath.Join(dir, "pprof"), 0o700))
				put(t, filepath.Join(dir, "pprof", "settings.json"),
					`{"configs": [{"name": "somebodys-own", "call_tree": true}]}`)
			}

			unset(t, "XDG_CONFIG_HOME")
			t.Setenv(variable, home)
			_, server := served(t)
			mustNotSay(t, "top", mustGet(t, server.URL+"/growth/top"), "somebodys-own")
			if got := os.Getenv(variable); got != home {
				t.Errorf("%s is %q, was %q", variable, got, home)
			}
		})
	}
}

func testNoHome(t *testing.T) {
	unset(t, "XDG_CONFIG_HOME")
	unset(t, "HOME")
	_, server := served(t)
	mustGet(t, server.URL+"/growth/top", "growth_big")
}

// unset unsets a variable for the test.
func unset(t *testing.T, variable string) {
	t.Helper()
	t.Setenv(variable, "")
	must(t, os.Unsetenv(variable))
}

func testOpenSnapshots(t *testing.T) {
	_, dir := trace(t)
	const all = 3 * maxOpenSnapshots
	for n := range all {
		if err := dir.WriteFile(folder.SnapshotFile(n),
			profiled(held("some", int64(n+1)<<20))); err != nil {
			t.Fatal(err)
		}
	}

	s := &snapshots{folder: dir}
	for n := range all {
		s.pagesOf(n)
		s.pagesOf(0)
	}

	if len(s.open) != maxOpenSnapshots || s.open[maxOpenSnapshots-1].number != 0 ||
		s.open[maxOpenSnapshots-2].number != all-1 {
		t.Errorf("kept: %v", s.open)
	}
}

// topRow is a row of pprof's top: sizes and function.
type topRow struct{ Flat, Cum, Name string }

// pprofTop are the rows that `go tool pprof -top` prints.
func pprofTop(t *testing.T, arguments ...string) (rows []topRow) {
	t.Helper()
	command := exec.Command("go", append([]string{
		"tool", "pprof", "-top", "-nodecount=500",
		"-symbolize=none",
	}, arguments...)...)

	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}

	_, table, found := strings.Cut(string(out), "cum%\n")
	if !found {
		t.Fatalf("no table:\n%s", out)
	}

	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		rows = append(rows, topRow{fields[0], fields[3], strings.Join(fields[5:], " ")})
	}

	return rows
}

var topTable = regexp.MustCompile(`(?m)^\s*makeTopTable\(.*?, (\[.*\])\);$`)

// pageTop are the rows of a top page.
func pageTop(t *testing.T, url string) (rows []topRow) {
	t.Helper()
	body := mustGet(t, url)
	found := topTable.FindStringSubmatch(body)
	if found == nil {
		t.Fatalf("%s has no table:\n%s", url, body)
	}

	var items []struct{ Name, FlatFormat, CumFormat string }
	must(t, json.Unmarshal([]byte(found[1]), &items))

	for _, i := range items {
		rows = append(rows, topRow{i.FlatFormat, i.CumFormat, i.Name})
	}

	return rows
}

func testNumbers(t *testing.T) {
	path, server := served(t)
	file := func(name string) string { return filepath.Join(path, name) }

	growth, warmup, plateau := file(folder.GrowthFile), file(folder.WarmupFile), file(folder.PlateauFile)
	base := "-diff_base=" + warmup
	for page, arguments := range map[string][]string{
		"/growth/top":                    {growth},
		"/diff/top":                      {base, plateau},
		"/snapshots/7/top":               {file(folder.SnapshotFile(7))},
		"/plateau/top?f=both&g=lines":    {"-focus=both", "-lines", plateau},
		"/diff/top?si=inuse_objects":     {"-sample_index=inuse_objects", base, plateau},
		"/growth/top?tf=kind:heap&sf=_b": {"-tagfocus=kind:heap", "-show_from=_b", growth},
	} {
		got, want := pageTop(t, server.URL+page), pprofTop(t, arguments...)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", page, got, want)
		}
	}
}

// names are words of each profile that no other has.
var names = map[string]string{
	"/growth/": "growth_big", "/warmup/": "warmup_big", "/plateau/": "plateau_big",
	"/snapshots/0/": "first_big", "/snapshots/7/": "seventh_big",
}

func testConcurrent(t *testing.T) {
	_, server := served(t)
	var wait sync.WaitGroup

	for prefix, own := range names {
		for _, page := range []string{
			"top", "graph", "flamegraph", "peek?f=.", "source?f=.",
			"top?si=alloc_objects", "flamegraph?si=inuse_space", "download",
		} {
			for range 3 {
				wait.Go(func() {
					status, body, _ := get(t, server.URL+prefix+page)
					if status != http.StatusOK {
						t.Errorf("%s%s: status %d", prefix, page, status)
					}

					if page == "download" {
						return
					}

					mustSay(t, prefix+page, body, own)
					for _, other := range names {
						if other != own {
							mustNotSay(t, prefix+page, body, other)
						}
					}
				})
			}
		}
	}

	wait.Wait()
}

var link = regexp.MustCompile(`(?:href|src)="([^"#]*)"`)

func testLinks(t *testing.T) {
	_, server := served(t)
	for _, prefix := range []string{"/growth/", "/diff/", "/snapshots/7/"} {
		mustGet(t, server.URL+prefix,
			`href="growth/top"`) // the brand of each page leads to the index
		for _, page := range []string{"top", "graph", "flamegraph", "peek?f=.", "source?f=."} {
			body := mustGet(t, server.URL+prefix+page)
			links := link.FindAllStringSubmatch(body, -1)
			for _, l := range links {
				if to := l[1]; !strings.HasPrefix(to, "./") && !strings.HasPrefix(to, "?") {
					t.Errorf("%s%s leads to %q", prefix, page, to)
				}
			}
			mustSay(t, prefix+page, body, `href="./"`, `href="./top"`, `href="./flamegraph"`)
		}
	}
}

func testAbsentPages(t *testing.T) {
	_, server := served(t)
	for prefix := range names {
		for _, page := range []string{
			"disasm?f=.", "saveconfig?config=x", "deleteconfig?config=x",
			"ui/", "ui/top", "debug/pprof/", "nothing",
		} {
			mustAnswer(t, server.URL+prefix+page, http.StatusNotFound)
		}

		_, _, header := get(t, server.URL+prefix+"top")
		mustSay(t, "the policy", header.Get("Content-Security-Policy"), "default-src 'none'",
			"frame-ancestors 'none'")
	}
}

func testGraph(t *testing.T) {
	_, server := served(t)
	mustGet(t, server.URL+"/growth/graph", "<svg", "growth_big")
	t.Setenv("PATH", t.TempDir())
	mustAnswer(t, server.URL+"/growth/graph", http.StatusNotImplemented, "graphviz")
}
