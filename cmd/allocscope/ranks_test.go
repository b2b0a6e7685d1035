package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// recordedRanks are the folders of real traces of 8 ranks, of which rank 3 alone calls evaluate.
func recordedRanks(t *testing.T) []string {
	t.Helper()
	traces := tracertest.Must(filepath.Abs("../../export/ranks/testdata/traces"))(t)
	folders, err := filepath.Glob(filepath.Join(traces, "rank?"))
	if err != nil || len(folders) != 8 {
		t.Fatal(folders, err)
	}
	return folders
}

func TestRanks(t *testing.T) {
	t.Parallel()
	t.Run("folders", testRanksFolders)
	t.Run("servers", testRanksServers)
	t.Run("trace lengths", testRanksTraceLengths)
	t.Run("refusals", testRanksRefusals)
	t.Run("damaged folders", testRanksDamaged)
}

// Package ranks proves the numbers.
func testRanksFolders(t *testing.T) {
	folders := recordedRanks(t)
	dir := t.TempDir()
	page, diff := filepath.Join(dir, "ranks.html"), filepath.Join(dir, "diff.pb.gz")
	c := call(t, append([]string{
		"ranks", "--fail-on", "outlier", "--html", page, "--profile", diff,
	}, folders...)...)
	c.mustEnd(int(exit.Found))
	mustSay(t, "stdout", c.stdout.String(), "RANK 3 STANDS OUT", "only there: evaluate (train.py:13)")
	mustSay(t, "the page", readFile(t, dir, "ranks.html"), "RANK 3 STANDS OUT", "evaluate")

	if p := readProfile(t, dir, "diff.pb.gz"); flat(p, "evaluate") == (values{}) {
		t.Errorf("evaluate is not in\n%s", p)
	}

	c = call(t, append([]string{"ranks", "--json"}, folders...)...)
	c.mustEnd(0)
	mustFit(t, "ranks.json", c.stdout.String())
	mustSay(t, "stdout", c.stdout.String(), `"evaluate"`)

	others := append(append([]string{"ranks", "--fail-on", "outlier"}, folders[:3]...), folders[4:]...)
	c = call(t, others...)
	c.mustEnd(int(exit.Inconclusive))
	mustSay(t, "stdout", c.stdout.String(), "CANNOT TELL", "none of 7 ranks stands out",
		"1 rank is missing of the job's 8: 3")
	call(t, append([]string{"ranks", "--fail-on", "outlier"}, folders[:2]...)...).mustEnd(int(exit.Inconclusive))
	c = call(t, append([]string{"ranks", "--rank", "5"}, others[3:]...)...)
	c.mustPrint("CANNOT TELL", "rank 5", "By stack")
}

// The answers are from Prometheus and Pyroscope (fleet/query/testdata).
func testRanksServers(t *testing.T) {
	recorded := readFile(t, "../../fleet/query/testdata/prometheus.json")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query" {
			fmt.Fprint(w, recorded)
			return
		}
		fmt.Fprint(w, "{}") // Pyroscope without profiles
	}))
	defer server.Close()

	c := call(t, "ranks", "--prometheus", server.URL, "--job", "resnet50-17")
	c.mustPrint("RANK 3 STANDS OUT", "the growth of 1 of 8 ranks is unknown")
	c = call(t, "ranks", "--prometheus", server.URL, "--pyroscope", server.URL, "--job", "resnet50-17", "--json")
	c.mustEnd(0)
	mustFit(t, "ranks.json", c.stdout.String())
	mustSay(t, "stdout", c.stdout.String(), "rank 3 has no growth profile")
	call(t, "ranks", "--prometheus", server.URL, "--pyroscope", server.URL, "--job", "resnet50-17",
		"--profile", filepath.Join(t.TempDir(), "diff.pb.gz")).mustEnd(int(exit.Failed))
}

// Ranks 2 and 3 gain memory by one line, in traces of unknown length. Package query proves the length
// by the metrics, and package ranks the comparison by it.
func testRanksTraceLengths(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/query":
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[
				{"metric":{},"value":[1,"1"]}`)
			for rank, rate := range []int{1 << 20, 1<<20 + 1, 1<<20 + 2, 1<<20 + 3} {
				for i, bound := range []string{"", "_low", "_high"} {
					fmt.Fprintf(w, `,{"metric":{"__name__":`+
						`"allocscope_process_growth%s_bytes_per_second","rank":"%d"},"value":[1,"%d"]}`,
						bound, rank, rate+[]int{0, -100, 100}[i])
				}
			}
			fmt.Fprint(w, "]}}")

		case "/querier.v1.QuerierService/SelectSeries":
			fmt.Fprintf(w, `{"series":[{"points":[{"value":1,"timestamp":"%d"}]}]}`,
				time.Now().UnixMilli())

		default:
			body, err := io.ReadAll(r.Body)
			if err == nil && bytes.Contains(body, []byte(`phase="growth"`)) {
				err = stepProfile(6 << 20).Write(w)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}))
	defer server.Close()

	arguments := []string{
		"ranks", "--prometheus", server.URL, "--pyroscope", server.URL, "--job", "1", "--rank", "3",
	}
	call(t, arguments...).mustPrint(
		"whether rank 2 (the median) grows there, too, is not\nknown",
		"the traces of rank 3 and rank 2 are not compared")

	diff := filepath.Join(t.TempDir(), "diff.pb.gz")
	call(t, append(arguments, "--profile", diff)...).mustEnd(int(exit.Failed))
}

// stepProfile is a profile of so many bytes by one line.
func stepProfile(bytes int64) *pprof.Profile {
	f := &pprof.Function{ID: 1, Name: "train_step", Filename: "train.py"}
	l := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: f, Line: 9}}}
	return &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "resident_space", Unit: "bytes"}},
		Function:   []*pprof.Function{f}, Location: []*pprof.Location{l},
		Sample: []*pprof.Sample{{Location: []*pprof.Location{l}, Value: []int64{bytes}}},
	}
}

func testRanksRefusals(t *testing.T) {
	folders := recordedRanks(t)
	for arguments, says := range map[string]string{
		"":                             "no traces are named",
		"/nowhere":                     "no such folder",
		"--fail-on leak " + folders[0]: "not outlier",
		"--limit -1 " + folders[0]:     "negative",
		"--rank -1 " + folders[0]:      "negative",
		"--since 0s --job 1 --prometheus http://h": "not positive",
		"--prometheus http://h":                    "no job is named",
		"--pyroscope http://h " + folders[0]:       "goes with --prometheus",
		"--user me " + folders[0]:                  "goes with --prometheus",
		"--prometheus http://h " + folders[0]:      "give one of them",
		"--prometheus h --job 1":                   "is not the URL of a server",
		"--prometheus http://u:p@h --job 1":        "password in it",
		"--job other " + folders[0]:                "there are resnet50-17",
		"--rank 77 " + strings.Join(folders, " "):  "there is no rank 77",
	} {
		c := call(t, append([]string{"ranks"}, strings.Fields(arguments)...)...)
		c.mustEndSaying(int(exit.Refused), says)
	}
}

// One damaged folder of many is a note.
func testRanksDamaged(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "damaged")
	must(t, os.Mkdir(damaged, 0o700))
	writeFile(t, filepath.Join(damaged, folder.SummaryFile), "{\n  \"schema\": \"allocscope/1\",", 0o600)
	c := call(t, append([]string{"ranks", damaged}, recordedRanks(t)...)...)
	c.mustPrint("RANK 3 STANDS OUT", "1 folder is not read")
}
