package view

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
)

func TestTheIndexNamesTheTraceAndLeadsToEverything(t *testing.T) {
	path, folder := trace(t)
	server := serve(t, folder, true)
	body := mustGet(t, server.URL+"/",
		"<title>allocscope: train &lt;er&gt;</title>", "PID 4242", "LEAK", "grows by 2.86 MiB/min, steady growth", "verdict-leak",
		"allocscope report "+path, `<a href="snapshots/0/flamegraph">0s</a>`, `<a href="snapshots/7/flamegraph">1m30s</a>`)
	for _, l := range link.FindAllStringSubmatch(body, -1) {
		if status, _, _ := get(t, server.URL+"/"+l[1]); status != http.StatusOK {
			t.Errorf("%s: status %d", l[1], status)
		}
	}
}

func TestWithoutASummaryTheProfilesAreShown(t *testing.T) {
	path, dir := trace(t)
	replace(t, filepath.Join(path, folder.SummaryFile), written(`{"schema": "other/1"}`))
	server := serve(t, dir, true)
	mustGet(t, server.URL+"/", "other/1", `href="growth/top"`, ">number 7<")
}

func TestTheReportIsServedAsItIsAndCanReadNoOtherPage(t *testing.T) {
	_, dir := trace(t)
	server := serve(t, dir, true)
	if status, body, _ := get(t, server.URL+"/report"); status != http.StatusNotFound {
		t.Errorf("without a report: status %d: %s", status, body)
	}
	const report = "<!doctype html><p>the report"
	err := dir.WriteFile(folder.ReportFile, func(w io.Writer) error {
		_, err := io.WriteString(w, report)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	status, body, header := get(t, server.URL+"/report")
	if status != http.StatusOK || body != report || header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("status %d, %v: %s", status, header, body)
	}
	mustSay(t, "the policy", header.Get("Content-Security-Policy"), "sandbox allow-scripts", "default-src 'none'")
	mustNotSay(t, "the policy", header.Get("Content-Security-Policy"), "allow-same-origin")
	mustNotSay(t, "the index", mustGet(t, server.URL+"/", `href="report"`), "allocscope report ")
}

func TestSettingsOfPprofAreNotRead(t *testing.T) {
	for _, variable := range []string{"XDG_CONFIG_HOME", "HOME"} {
		t.Run(variable, func(t *testing.T) {
			home := t.TempDir()
			for _, dir := range []string{home, filepath.Join(home, ".config")} {
				if err := os.MkdirAll(filepath.Join(dir, "pprof"), 0o700); err != nil {
					t.Fatal(err)
				}
				settings := filepath.Join(dir, "pprof", "settings.json")
				if err := os.WriteFile(settings, []byte(`{"configs": [{"name": "somebodys-own", "call_tree": true}]}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			unset(t, "XDG_CONFIG_HOME")
			t.Setenv(variable, home)
			_, folder := trace(t)
			mustNotSay(t, "top", mustGet(t, serve(t, folder, true).URL+"/growth/top"), "somebodys-own")
			if got := os.Getenv(variable); got != home {
				t.Errorf("%s is %q, was %q", variable, got, home)
			}
		})
	}
}

func TestNoHomeIsNeeded(t *testing.T) {
	unset(t, "XDG_CONFIG_HOME")
	unset(t, "HOME")
	_, folder := trace(t)
	mustGet(t, serve(t, folder, true).URL+"/growth/top", "growth_big")
}

// unset unsets a variable for the test.
func unset(t *testing.T, variable string) {
	t.Helper()
	t.Setenv(variable, "")
	if err := os.Unsetenv(variable); err != nil {
		t.Fatal(err)
	}
}

func TestAFewSnapshotsAreKept(t *testing.T) {
	_, dir := trace(t)
	const all = 3 * mostOpen
	for n := range all {
		if err := dir.WriteFile(folder.SnapshotFile(n), profiled(held("some", int64(n+1)<<20))); err != nil {
			t.Fatal(err)
		}
	}
	s := &snapshots{folder: dir}
	for n := range all {
		s.pagesOf(n)
		s.pagesOf(0)
	}
	if len(s.opened) != mostOpen || s.opened[mostOpen-1].number != 0 || s.opened[mostOpen-2].number != all-1 {
		t.Errorf("kept: %v", s.opened)
	}
}
