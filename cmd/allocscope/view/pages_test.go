package view

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A topRow is a row of pprof's top: sizes and function.
type topRow struct{ Flat, Cum, Name string }

// pprofTop are the rows that `go tool pprof -top` prints.
func pprofTop(t *testing.T, arguments ...string) (rows []topRow) {
	t.Helper()
	command := exec.Command("go", append([]string{"tool", "pprof", "-top", "-nodecount=500", "-symbolize=none"}, arguments...)...)
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
	if err := json.Unmarshal([]byte(found[1]), &items); err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		rows = append(rows, topRow{i.FlatFormat, i.CumFormat, i.Name})
	}
	return rows
}

func TestThePagesHaveTheNumbersOfGoToolPprof(t *testing.T) {
	path, folder := trace(t)
	server := serve(t, folder, true)
	file := func(name string) string { return filepath.Join(path, name) }
	for page, arguments := range map[string][]string{
		"/growth/top":                    {file("growth.pb.gz")},
		"/warmup/top":                    {file("warmup.pb.gz")},
		"/plateau/top":                   {file("plateau.pb.gz")},
		"/diff/top":                      {"-diff_base=" + file("warmup.pb.gz"), file("plateau.pb.gz")},
		"/snapshots/7/top":               {file("snapshots/007.pb.gz")},
		"/plateau/top?si=alloc_space":    {"-sample_index=alloc_space", file("plateau.pb.gz")},
		"/plateau/top?f=both&g=lines":    {"-focus=both", "-lines", file("plateau.pb.gz")},
		"/diff/top?si=inuse_objects":     {"-sample_index=inuse_objects", "-diff_base=" + file("warmup.pb.gz"), file("plateau.pb.gz")},
		"/growth/top?tf=kind:heap&sf=_b": {"-tagfocus=kind:heap", "-show_from=_b", file("growth.pb.gz")},
	} {
		got, want := pageTop(t, server.URL+page), pprofTop(t, arguments...)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", page, got, want)
		}
	}
}

// names are words of each profile that no other has.
var names = map[string]string{
	"/growth/": "growth_big", "/warmup/": "warmup_big", "/plateau/": "plateau_big", "/snapshots/0/": "first_big", "/snapshots/7/": "seventh_big",
}

func TestEachPathKeepsItsProfileWhenAllAreAskedAtOnce(t *testing.T) {
	_, folder := trace(t)
	server := serve(t, folder, true)
	var wait sync.WaitGroup
	for prefix, own := range names {
		for _, page := range []string{"top", "graph", "flamegraph", "peek?f=.", "source?f=.", "top?si=alloc_objects", "flamegraph?si=inuse_space", "", "download"} {
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

func TestLinksOfEveryPageStayOnTheirProfile(t *testing.T) {
	_, folder := trace(t)
	server := serve(t, folder, true)
	up := map[string]string{"/growth/": "../", "/diff/": "../", "/snapshots/7/": "../../"}
	for prefix, toIndex := range up {
		for _, page := range []string{"top", "graph", "flamegraph", "peek?f=.", "source?f=."} {
			body := mustGet(t, server.URL+prefix+page)
			links := link.FindAllStringSubmatch(body, -1)
			for _, l := range links {
				if to := l[1]; to != toIndex && !strings.HasPrefix(to, "./") && !strings.HasPrefix(to, "?") {
					t.Errorf("%s%s leads to %q", prefix, page, to)
				}
			}
			mustSay(t, prefix+page, body, `href="`+toIndex+`"`, `href="./top"`, `href="./flamegraph"`)
		}
	}
}

func TestPagesThatWriteOrRunToolsAreNotThere(t *testing.T) {
	_, folder := trace(t)
	server := serve(t, folder, true)
	for prefix := range names {
		for _, page := range []string{"disasm?f=.", "saveconfig?config=x", "deleteconfig?config=x", "ui/", "ui/top", "debug/pprof/", "nothing"} {
			if status, body, _ := get(t, server.URL+prefix+page); status != http.StatusNotFound {
				t.Errorf("%s%s: status %d: %s", prefix, page, status, beginning(body))
			}
		}
		body := mustGet(t, server.URL+prefix+"top")
		_, _, header := get(t, server.URL+prefix+"top")
		mustSay(t, "the policy", header.Get("Content-Security-Policy"), "default-src 'none'", "frame-ancestors 'none'")
		mustSay(t, prefix, body, "<style>#config, #disasm { display: none }", `id="config"`, `id="disasm"`)
	}
}

func TestTheGraphIsDrawnOrSaysWhatIsMissing(t *testing.T) {
	_, folder := trace(t)
	server := serve(t, folder, true)
	mustGet(t, server.URL+"/growth/graph", "<svg", "growth_big")
	t.Setenv("PATH", t.TempDir())
	status, body, _ := get(t, server.URL+"/growth/graph")
	if status != http.StatusNotImplemented {
		t.Errorf("without dot: status %d", status)
	}
	mustSay(t, "the page", body, "graphviz")
}
