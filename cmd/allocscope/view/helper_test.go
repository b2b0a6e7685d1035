package view

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

var module = &growth.Module{Path: "/opt/job/trainer", BuildID: "c0ffee", Start: 0x400000, Limit: 0x500000}

func frame(function, file string, line int) growth.Frame {
	return growth.Frame{Function: function, File: file, Line: line, Module: module, Address: 0x400000 + uint64(line)}
}

// held are holdings of so many bytes by two stacks, whose functions begin with the name.
func held(name string, bytes int64) []growth.Holding {
	holding := func(leaf string, bytes int64) growth.Holding {
		return growth.Holding{
			Stack: &growth.Stack{Frames: []growth.Frame{
				frame(name+"_"+leaf, "/src/"+name+".c", 10+len(leaf)), frame(name+"_main", "/src/"+name+".c", 40),
			}},
			Kind: growth.KindHeap, InuseObjects: 2, InuseBytes: bytes, ResidentBytes: bytes, AllocObjects: 4, AllocBytes: float64(2 * bytes),
		}
	}
	return []growth.Holding{holding("big", bytes), holding("little", bytes/3)}
}

func profiled(holdings []growth.Holding) func(io.Writer) error {
	return func(w io.Writer) error { return profile.Write(w, holdings, profile.Info{Interval: 1}) }
}

// trace writes the folder of a trace: three profiles with functions of their own and one in common, two snapshots, a summary.
func trace(t *testing.T) (path string, dir *folder.Folder) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "out")
	dir, err := folder.Create(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	rate := 3e6
	s := summary.Summary{
		Process:    summary.Process{PID: 4242, Command: "train <er>"},
		Verdict:    summary.Verdict{Class: growth.ClassLeak, Why: "steady growth", RateBytesPerMin: &rate},
		SnapshotsS: []float64{0, 90},
	}
	for name, write := range map[string]func(io.Writer) error{
		folder.SummaryFile:     s.Write,
		folder.GrowthFile:      profiled(held("growth", 3<<20)),
		folder.WarmupFile:      profiled(append(held("warmup", 5<<20), held("both", 1<<20)...)),
		folder.PlateauFile:     profiled(append(held("plateau", 7<<20), held("both", 4<<20)...)),
		folder.SnapshotFile(0): profiled(held("first", 1<<20)),
		folder.SnapshotFile(7): profiled(held("seventh", 2<<20)),
	} {
		if err := dir.WriteFile(name, write); err != nil {
			t.Fatal(err)
		}
	}
	return path, dir
}

// serve serves the pages of a folder.
func serve(t *testing.T, folder *folder.Folder, source bool) *httptest.Server {
	t.Helper()
	pages, err := New(folder, source)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(pages)
	t.Cleanup(server.Close)
	return server
}

// get gets a page.
func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data), response.Header
}

// mustGet gets a page that is there and says the words.
func mustGet(t *testing.T, url string, words ...string) string {
	t.Helper()
	status, body, _ := get(t, url)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", url, status, body)
	}
	mustSay(t, url, body, words...)
	return body
}

func mustSay(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s does not say %q:\n%s", where, word, beginning(text))
		}
	}
}

func mustNotSay(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(text, word) {
			t.Errorf("%s says %q", where, word)
		}
	}
}

func beginning(text string) string { return fmt.Sprintf("%.2000s", text) }
