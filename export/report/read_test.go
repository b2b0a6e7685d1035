package report

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// written are the files of a trace.
func written(t testing.TB, trace *Trace) map[string][]byte {
	t.Helper()
	var s, timeline, grown bytes.Buffer
	w, _ := rows.NewTimelineWriter(&timeline)
	err := errors.Join(trace.Summary.Write(&s), w.Write(trace.Rows...), trace.Growth.Write(&grown))
	tracertest.NoError(t, err)
	return map[string][]byte{
		folder.SummaryFile: s.Bytes(), folder.TimelineFile: timeline.Bytes(),
		folder.GrowthFile: grown.Bytes(),
	}
}

// folderOf is a folder with these files; nil: it is not there.
func folderOf(t testing.TB, files map[string][]byte) *folder.Folder {
	t.Helper()
	folder, err := folder.Create(filepath.Join(t.TempDir(), "out"),
		folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}, false)
	tracertest.NoError(t, err)
	t.Cleanup(func() { folder.Close() })
	for name, content := range files {
		if content == nil {
			continue
		}
		write := func(w io.Writer) error { _, err := w.Write(content); return err }
		tracertest.NoError(t, folder.WriteFile(name, write))
	}
	return folder
}

func TestRead(t *testing.T) {
	want := leakingTrace(t)
	got := tracertest.Must(Read(folderOf(t, written(t, want))))(t)
	want.Dir = got.Dir
	var a, b bytes.Buffer
	if Write(&a, got) != nil || Write(&b, want) != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("the page of the files differs from that of the trace")
	}
	if len(got.Missing) != 0 || len(got.Rows) != 301 || !reflect.DeepEqual(got.Rows, want.Rows) {
		t.Errorf("%d rows, missing %q", len(got.Rows), got.Missing)
	}

	t.Run("missing or damaged files", func(t *testing.T) {
		whole := written(t, leakingTrace(t))
		grown := whole[folder.GrowthFile]
		lines := bytes.SplitAfter(whole[folder.TimelineFile], []byte("\n"))
		for name, test := range map[string]struct {
			file    string
			content []byte
			rows    int
			flame   bool
			says    string
		}{
			"no timeline": {folder.TimelineFile, nil, 0, true, "read timeline.csv: no such file"},
			"cut timeline": {
				folder.TimelineFile, bytes.Join(append(lines[:11:11], []byte("10.0")), nil), 10,
				true, "line 12: cut short: no newline at its end (the rows before are shown)",
			},
			"no profile": {folder.GrowthFile, nil, 301, false, "read growth.pb.gz: no such file"},
			"cut profile": {
				folder.GrowthFile, grown[:len(grown)-1], 301, false,
				"read growth.pb.gz: decompress: unexpected EOF",
			},
			"bomb": {
				folder.GrowthFile, packed(make([]byte, 40<<20)), 301, false,
				"larger than 33554432 bytes",
			},
		} {
			t.Run(name, func(t *testing.T) {
				files := maps.Clone(whole)
				files[test.file] = test.content
				trace := tracertest.Must(Read(folderOf(t, files)))(t)
				page := show(t, trace)
				page.mustSay(t, "losses", test.says)
				if (page.data.Flame != nil) != test.flame || len(trace.Rows) != test.rows ||
					page.data.Timeline != nil && len(page.data.Timeline.TimeS) != test.rows {
					t.Errorf("%d rows, flame graph %v", len(trace.Rows), page.data.Flame != nil)
				}
			})
		}
	})

	t.Run("bad summary", func(t *testing.T) {
		files := written(t, leakingTrace(t))
		for want, content := range map[string][]byte{
			"read summary.json: no such file or directory": nil,
			"read summary.json: the file is truncated":     files[folder.SummaryFile][:1000],
		} {
			files[folder.SummaryFile] = content
			_, err := Read(folderOf(t, files))
			exporttest.WantError(t, err, want)
		}
	})

	t.Run("too many rows", func(t *testing.T) {
		r := &rows.FirstLines{R: strings.NewReader("a\nb\nc\n"), Left: 2}
		if data, err := io.ReadAll(r); string(data) != "a\nb\n" || err != nil || r.Left != 0 {
			t.Errorf("%q, %v", data, err)
		}
		var all bytes.Buffer
		w, _ := rows.NewTimelineWriter(&all)
		tracertest.NoError(t, w.Write(leakingTrace(t).Rows[0]))
		line := all.Bytes()[bytes.IndexByte(all.Bytes(), '\n')+1:]
		var trace Trace
		err := trace.readRows(io.MultiReader(&all, bytes.NewReader(bytes.Repeat(line, 500_100))))
		if fmt.Sprint(err) != "only the first 500000 rows are shown" || len(trace.Rows) != 500_000 {
			t.Errorf("%d rows, %v", len(trace.Rows), err)
		}
	})

	// Where several processes are traced, timeline.csv has their sums, and the verdict is about one
	// of them.
	t.Run("several traced processes", func(t *testing.T) {
		want := leakingTrace(t)
		want.Summary.Processes = append(want.Summary.Processes, summary.TreeProcess{
			PID: 50, Role: growth.RoleRank, Traced: true, LastS: 300,
		})
		var processes bytes.Buffer
		w := tracertest.Must(rows.NewProcessesWriter(&processes))(t)
		sums := slices.Clone(want.Rows)
		for i, row := range want.Rows {
			if i == 7 {
				continue // at that moment it could not be read
			}
			traced := growth.ProcessSample{PID: 42, Sample: row.Sample}
			other := growth.ProcessSample{PID: 50, Sample: row.Sample}
			other.RSS = 1000 * mib
			sums[i].RSS += 1000 * mib
			tracertest.NoError(t, w.Write(other, traced))
		}
		want.Rows[7].Sample = growth.UnknownSample()
		want.Rows[7].Elapsed = sums[7].Elapsed
		files := written(t, &Trace{Summary: want.Summary, Rows: sums, Growth: want.Growth})
		for name, test := range map[string]struct {
			processes []byte
			known     int
			missing   string
		}{
			"whole":   {processes.Bytes(), 300, "[]"},
			"missing": {nil, 0, "read processes.csv: no such file"},
			"cut":     {processes.Bytes()[:processes.Len()/2], 150, "cut short"},
		} {
			files[folder.ProcessesFile] = test.processes
			got := tracertest.Must(Read(folderOf(t, files)))(t)
			known := 0
			for i, row := range got.Rows {
				if row.RSS == growth.Unknown {
					continue
				}
				if known++; row != want.Rows[i] {
					t.Fatalf("%s: %+v, want %+v", name, row, want.Rows[i])
				}
			}
			if known < test.known-5 || known > test.known+5 ||
				!strings.Contains(fmt.Sprint(got.Missing), test.missing) || len(got.Rows) != 301 {
				t.Errorf("%s: %d of %d rows are known, missing %q", name, known, len(got.Rows),
					got.Missing)
			}
			if page := show(t, got); page.data.Timeline == nil ||
				(page.data.Timeline.Series[0].Key == "rss") != (known > 0) {
				t.Errorf("%s: %v", name, page.data.Timeline)
			}
		}
	})
}

func packed(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// FuzzRead reads any files in a folder: it gives an error, or a trace of which there is a page with
// data that can be read.
func FuzzRead(f *testing.F) {
	unpacked := func(trace *Trace) []byte {
		var plain bytes.Buffer
		tracertest.NoError(f, trace.Growth.WriteUncompressed(&plain))
		return plain.Bytes()
	}
	files, grown := written(f, leakingTrace(f)), unpacked(leakingTrace(f))
	s, timeline := files[folder.SummaryFile], files[folder.TimelineFile]
	f.Add(s, timeline, grown)
	f.Add(s[:1000], timeline[:1000], grown[:100])
	f.Add([]byte(`{"schema":"allocscope/1","verdict":"leak","groups":[{"verdict":"leak"}],"processes":[{}],"accumulating":[{}],"suspects":[{}],"phases":[{}],"spikes":{"spans":[{}]}}`),
		[]byte("time_s,rss_bytes"), []byte{})
	f.Add([]byte(`{"schema":"allocscope/1","bound_bytes":-1e300,"rate_bytes":1e308,"rate_low_bytes":-1e308,"rate_high_bytes":1e308,"level_bytes":1e308,"snapshots_s":[1e308,-1e308],
		"accumulating":[{"bytes":-9223372036854775808,"age_s":-1,"share":1e300,"history_bytes":[9223372036854775807,-1]}],"breakdown":[{"kind":"heap","delta_bytes":9223372036854775807,"end_bytes":-9223372036854775808}],
		"residents":[{"threads":9223372036854775807}],"to_limit":1e308,"verdict":"plateau"}`), timeline, grown)
	f.Add([]byte(`{"schema":"allocscope/1","gpu_memory":[{"curves":[{}],"breakdown":[{}],"accumulating":[{}],"suspects":[{}],"phases":[{}]},
		{"pid":42,"judged":"used","verdict":"leak","rate_bytes":1e308,"to_limit":-1e308,"headroom_bytes":-9223372036854775808,"phases":[{"from":1e308,"to":-1e308}],
		"curves":[{"name":"used","start_bytes":-9223372036854775808,"end_bytes":9223372036854775807,"bytes_per_min":9223372036854775807}],
		"breakdown":[{"kind":"cuda-block","start_bytes":-9223372036854775808,"end_bytes":9223372036854775807},{"kind":"not-attributed","end_bytes":-9223372036854775808}]}]}`), timeline, grown)
	device := gpuTrace(f)
	files = written(f, device)
	f.Add(files[folder.SummaryFile], files[folder.TimelineFile], unpacked(device))
	f.Fuzz(func(t *testing.T, s, timeline, grown []byte) {
		trace, err := Read(folderOf(t, map[string][]byte{
			folder.SummaryFile: s, folder.TimelineFile: timeline, folder.GrowthFile: packed(grown),
		}))
		if err != nil {
			return
		}
		page := show(t, trace)
		each(page.root, "script", func(n *html.Node) {
			if n.Parent.Data != "body" {
				t.Errorf("a script in %s", n.Parent.Data)
			}
		})
	})
}
