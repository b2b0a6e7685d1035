package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// secret matches the names of testdata/secrets.py, of its user, host, job and folders.
var secret = regexp.MustCompile(`(?i)okapi|quagga|zebu`)

// recorded is the trace of testdata/secrets.py: see testdata/record.
const recorded = "testdata/trace"

func TestSecrets(t *testing.T) {
	t.Parallel()
	for name, content := range filesOf(t, recorded) {
		if name != "timeline.csv" && name != "processes.csv" && !secret.Match(content) {
			t.Errorf("the recorded %s has no secret", name)
		}
	}

	finding := "open /home/zebu-user/okapi: there is no quagga"
	files, _ := bundled(t, recorded, Options{
		Documents: map[string]any{"doctor.json": &struct{ Finding string }{finding}},
	})

	if len(files) < 10 {
		t.Errorf("only the files %q", slices.Sorted(maps.Keys(files)))
	}

	for name, content := range files {
		if found := secret.FindAll(content, -1); found != nil {
			t.Errorf("%s has the secrets %q", name, found)
		}
	}
}

// TestNumbers compares the numbers with the trace.
func TestNumbers(t *testing.T) {
	t.Parallel()
	before := filesOf(t, recorded)
	after, _ := bundled(t, recorded, Options{})

	for _, name := range []string{"timeline.csv", "processes.csv"} {
		if !bytes.Equal(before[name], after[name]) {
			t.Errorf("%s differs", name)
		}
	}

	var was, is any
	if err := errors.Join(json.Unmarshal(before["summary.json"], &was),
		json.Unmarshal(after["summary.json"], &is)); err != nil {
		t.Fatal(err)
	}

	delete(was.(map[string]any)["files"].(map[string]any), "report")
	for _, document := range []any{was, is} { // text is sentences, and next_steps is newer
		delete(document.(map[string]any), "text")
		delete(document.(map[string]any), "next_steps")
	}
	if was, is := numbersIn(was), numbersIn(is); !reflect.DeepEqual(was, is) {
		t.Errorf("the numbers or enums of the summary differ")
	}

	for name := range before {
		if !strings.HasSuffix(name, ".pb.gz") {
			continue
		}

		was, is := sumsOf(t, before[name]), sumsOf(t, after[name])
		if len(was) < 5 || !reflect.DeepEqual(was, is) {
			t.Errorf("%s sums to %v, was %v", name, is, was)
		}

		if was, is := versionOf(t, before[name]), versionOf(t, after[name]); was == "" || was != is {
			t.Errorf("%s is of %q, was of %q", name, is, was)
		}
	}
}

// versionOf returns the comment of a profile that has the version of allocscope.
func versionOf(t *testing.T, content []byte) string {
	t.Helper()
	p := tracertest.Must(pprof.ParseUncompressed(content))(t)

	for _, comment := range p.Comments {
		if strings.HasPrefix(comment, "allocscope ") {
			return comment
		}
	}
	return ""
}

// enums are the keys of allocscope's own words.
var enums = set(`verdict why why_code kind trend cause confidence role state mode code of ended how reason
about architecture cause`)

// numbersIn returns a document with all texts empty, but for enums.
func numbersIn(document any) any {
	switch d := document.(type) {
	case string:
		return ""
	case []any:
		for i := range d {
			d[i] = numbersIn(d[i])
		}
	case map[string]any:
		for key, value := range d {
			if _, isText := value.(string); !isText || !enums[key] {
				d[key] = numbersIn(value)
			}
		}
	}

	return document
}

// sumsOf has the sums of a profile by sample type and kind, and the number of samples by length.
func sumsOf(t *testing.T, content []byte) map[string]int64 {
	t.Helper()
	p := tracertest.Must(pprof.ParseUncompressed(content))(t)

	sums := make(map[string]int64)
	for _, s := range p.Sample {
		for i, value := range s.Value {
			sums[p.SampleType[i].Type+" of "+s.Label["kind"][0]] += value
		}

		for _, l := range s.Location {
			for _, line := range l.Line {
				sums["lines"] += line.Line + int64(len(s.Location))
			}
		}
	}

	return sums
}

// TestPublicNames checks that a reader learns where the memory comes from.
func TestPublicNames(t *testing.T) {
	t.Parallel()
	files, contents := bundled(t, recorded, Options{})
	growth := string(files["growth.pb.gz"])
	for _, want := range []string{
		"/usr/lib/python3.11/json/decoder.py", "JSONDecoder.raw_decode", "libc.so.6", "malloc",
		"<module>",
	} {
		if !strings.Contains(growth, want) {
			t.Errorf("growth.pb.gz lacks %q", want)
		}
	}

	if !slices.Contains(contents.Libraries, "/usr/lib/x86_64-linux-gnu/libc.so.6") {
		t.Errorf("the libraries are %q", contents.Libraries)
	}

	// One file and one function have the same pseudonyms in all files.
	var s summary.Summary
	tracertest.NoError(t, json.Unmarshal(files["summary.json"], &s))

	place := regexp.MustCompile(`^(.+) \((.+):\d+\)$`).FindStringSubmatch(s.Suspects[0].Function)
	if place == nil || !strings.Contains(growth, place[1]) || !strings.Contains(growth, place[2]) {
		t.Errorf("%q is not in growth.pb.gz", s.Suspects[0].Function)
	}
}

func TestHide(t *testing.T) {
	t.Parallel()
	files, contents := bundled(t, recorded, Options{Hide: []string{"json", "libffi.so.8.1.2"}})
	for _, name := range []string{"growth.pb.gz", "plateau.pb.gz", "summary.json"} {
		for _, hidden := range []string{"JSONDecoder", "raw_decode", "python3.11/json/", "libffi.so"} {
			if bytes.Contains(files[name], []byte(hidden)) {
				t.Errorf("%s has %q", name, hidden)
			}
		}
	}

	if slices.Contains(contents.Libraries, "libffi.so.8.1.2") {
		t.Errorf("the libraries are %q", contents.Libraries)
	}
}

func TestHideOfNothing(t *testing.T) {
	t.Parallel()
	_, err := Write(t.Context(), io.Discard, open(t, recorded),
		Options{Hide: []string{"json", "nosuchname"}})
	exporttest.WantError(t, err, "hide nosuchname: ")
}

func TestKeepNames(t *testing.T) {
	t.Parallel()
	before := filesOf(t, recorded)
	after, contents := bundled(t, recorded, Options{KeepNames: true})
	for _, name := range contents.Files {
		if name != "summary.json" && !bytes.Equal(before[name], after[name]) {
			t.Errorf("%s differs", name)
		}
	}

	if !contents.NamesKept || len(contents.Replaced) > 0 {
		t.Errorf("contents %+v", contents)
	}
}

func TestDamagedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"summary.json":  "{\n  \"schema\": \"allocscope/1\",\n  \"okapi\": \"quag",
		"timeline.csv":  "time_s,rss_bytes,okapi\n1.000,2\nokapi\n2.000,3\n2.0",
		"processes.csv": "time_s,pid\n1.000,quagga\n",
		"objects.csv": "time_s,pid,type,count,bytes,margin\n" +
			"1.000,2,okapi.Okapi,3,4,0\nokapi\n1.000,2,\"okapi",
		"growth.pb.gz": "okapi",
		"warmup.pb.gz": "",
		"other":        "okapi",

		"gpu-snapshot-42.pickle": "okapi",
	} {
		tracertest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}

	files, contents := bundled(t, dir, Options{})
	for name, content := range files {
		if found := secret.FindAll(content, -1); found != nil {
			t.Errorf("%s has the secrets %q", name, found)
		}
	}

	if got := string(files["timeline.csv"]); got != "1.000,2\n2.000,3\n2.0\n" {
		t.Errorf("timeline.csv is %q", got)
	}

	var named []string
	for _, l := range contents.LeftOut {
		named = append(named, l.File)
	}

	want := []string{
		"summary.json", "timeline.csv", "processes.csv", "objects.csv", "growth.pb.gz", "warmup.pb.gz",
		"gpu-snapshot-42.pickle",
	}

	if !slices.Equal(named, want) {
		t.Errorf("left out %+v", contents.LeftOut)
	}
}

// A GPU snapshot is neither in the bundle nor among the files of its summary.
func TestGPUSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := bytes.Replace(filesOf(t, recorded)["summary.json"], []byte(`"files": {`),
		[]byte(`"files": { "gpu_snapshot": "gpu-snapshot.pickle",`), 1)
	for name, content := range map[string][]byte{
		"summary.json": s, "gpu-snapshot.pickle": []byte("okapi"),
	} {
		tracertest.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}

	for _, options := range []Options{{}, {KeepNames: true}} {
		files, contents := bundled(t, dir, options)
		if files["gpu-snapshot.pickle"] != nil ||
			contents.LeftOut[0].File != "gpu-snapshot.pickle" {
			t.Errorf("left out %+v", contents.LeftOut)
		}
		if bytes.Contains(files["summary.json"], []byte("gpu_snapshot")) {
			t.Error("the summary names the file")
		}
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, io.Discard, open(t, recorded), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestPprof has pprof read a profile of a bundle.
func TestPprof(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	dir := open(t, recorded)
	if _, err := Write(t.Context(), &archive, dir, Options{}); err != nil {
		t.Fatal(err)
	}

	unpacked := t.TempDir()
	tar := exec.Command("tar", "-xzf", "-", "-C", unpacked)
	tar.Stdin = &archive
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	out, err := exec.Command("go", "tool", "pprof", "-top", "-sample_index=inuse_space",
		filepath.Join(unpacked, Name, "growth.pb.gz")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "name-") ||
		strings.Contains(string(out), " malloc\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func open(t *testing.T, path string) *folder.Folder {
	t.Helper()
	dir := tracertest.Must(folder.Open(path, folder.Owner{}))(t)

	t.Cleanup(func() { dir.Close() })
	return dir
}

// bundled returns the files of a bundle, profiles decompressed.
func bundled(t *testing.T, path string, o Options) (map[string][]byte, *Contents) {
	t.Helper()
	var archive bytes.Buffer
	contents := tracertest.Must(Write(t.Context(), &archive, open(t, path), o))(t)

	plain := tracertest.Must(gzip.NewReader(&archive))(t)

	files := make(map[string][]byte)
	for in := tar.NewReader(plain); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, contents
		}
		tracertest.NoError(t, err)

		if header.Uname != "" || header.Gname != "" || header.Uid != 0 {
			t.Errorf("%s belongs to %q, %q, %d", header.Name, header.Uname, header.Gname, header.Uid)
		}

		content := tracertest.Must(io.ReadAll(in))(t)

		name, isInside := strings.CutPrefix(header.Name, Name+"/")
		if !isInside {
			t.Errorf("%s lies outside", header.Name)
		}

		files[name] = decompressed(t, name, content)
	}
}

// filesOf returns the files of a folder, profiles decompressed.
func filesOf(t *testing.T, path string) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	for _, pattern := range []string{"*.*", "snapshots/*"} {
		found := tracertest.Must(filepath.Glob(filepath.Join(path, pattern)))(t)

		for _, file := range found {
			content := tracertest.Must(os.ReadFile(file))(t)

			name := strings.TrimPrefix(file, path+"/")
			files[name] = decompressed(t, name, content)
		}
	}

	return files
}

func decompressed(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	if !strings.HasSuffix(name, ".gz") {
		return content
	}

	in, err := gzip.NewReader(bytes.NewReader(content))
	if err == nil {
		content, err = io.ReadAll(in)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}

	return content
}
