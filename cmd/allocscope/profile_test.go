package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// parseProfile reads a file with pprof's own library, which takes the allocator's frames out as DropFrames says.
func parseProfile(t *testing.T, path string) *pprof.Profile {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p, err := pprof.Parse(file)
	if err == nil {
		err = p.CheckValid()
	}
	if err == nil {
		err = p.RemoveUninteresting()
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return p
}

func readProfile(t *testing.T, folder, name string) *pprof.Profile {
	t.Helper()
	return parseProfile(t, filepath.Join(folder, name))
}

// values of a sample, by the types that allocscope writes, without what is resident.
type values struct{ allocObjects, allocSpace, inuseObjects, inuseSpace int64 }

// sampleValues are those of all types.
type sampleValues [5]int64

// flat sums the samples whose leaf is the function.
func flat(p *pprof.Profile, function string) values {
	var sum sampleValues
	for _, s := range p.Sample {
		if s.Location[0].Line[0].Function.Name == function {
			for i, v := range s.Value {
				sum[i] += v
			}
		}
	}
	return values{sum[0], sum[1], sum[2], sum[3]}
}

// total sums the samples of a kind.
func total(p *pprof.Profile, kind growth.Kind) (inuseObjects, inuseSpace int64) {
	for _, s := range p.Sample {
		if s.Label["kind"][0] == string(kind) {
			inuseObjects += s.Value[2]
			inuseSpace += s.Value[3]
		}
	}
	return inuseObjects, inuseSpace
}

// byStack sums the samples by kind and stack.
func byStack(p *pprof.Profile) map[string]sampleValues {
	sums := make(map[string]sampleValues)
	for _, s := range p.Sample {
		key := s.Label["kind"][0]
		for _, l := range s.Location {
			key += fmt.Sprintf(" %#x %s", l.Address, l.Line[0].Function.Name) // what has no holder has no address
		}
		sum := sums[key]
		for i, v := range s.Value {
			sum[i] += v
		}
		sums[key] = sum
	}
	return sums
}

func mustHold(t *testing.T, what string, got, want values) {
	t.Helper()
	if got != want {
		t.Errorf("%s has %+v, want %+v", what, got, want)
	}
}

// objects of one size that are alive and have never been joined by others.
func objects(n, size int64) values { return values{n, n * size, n, n * size} }

var (
	topHeader = regexp.MustCompile(`(?m)^ +flat +flat% +sum% +cum +cum%$`)
	topRow    = regexp.MustCompile(`^ *(\S+) +\S+ +\S+ +(\S+) +\S+ +(.*)$`)
)

// pprofTop is the table of go tool pprof -top: rows "flat cum name", as ordered there.
func pprofTop(t *testing.T, arguments ...string) []string {
	t.Helper()
	arguments = append([]string{"tool", "pprof", "-top", "-symbolize=none", "-nodecount=100000", "-nodefraction=0", "-edgefraction=0"}, arguments...)
	out, err := exec.Command("go", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	at := topHeader.FindIndex(out)
	if at == nil {
		t.Fatalf("go %s prints no table:\n%s", strings.Join(arguments, " "), out)
	}
	var rows []string
	for line := range strings.Lines(strings.TrimPrefix(string(out[at[1]:]), "\n")) {
		columns := topRow.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if columns == nil {
			t.Fatalf("row %q of go tool pprof -top", line)
		}
		rows = append(rows, strings.Join(columns[1:], " "))
	}
	return rows
}

func readFile(t *testing.T, folder, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// readSummary decodes summary.json, in which nothing may stand that is not declared, and whose ledger must balance.
func readSummary(t *testing.T, dir string) summary.Summary {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(readFile(t, dir, folder.SummaryFile)))
	decoder.DisallowUnknownFields()
	var s summary.Summary
	if err := decoder.Decode(&s); err != nil {
		t.Fatalf("%s: %v", folder.SummaryFile, err)
	}
	if decoder.More() {
		t.Errorf("%s holds more than one value", folder.SummaryFile)
	}
	mustBalance(t, &s)
	return s
}

func mustHaveEnded(t *testing.T, folder, why string) summary.Summary {
	t.Helper()
	s := readSummary(t, folder)
	if s.Ended != why {
		t.Errorf("ended: %q, want %q", s.Ended, why)
	}
	return s
}
