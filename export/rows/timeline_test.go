package rows

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func writeTimeline(t *testing.T, timeline []growth.Row) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tracertest.Must(NewTimelineWriter(&buf))(t)
	for _, s := range timeline {
		tracertest.NoError(t, w.Write(s))
	}
	return buf.Bytes()
}

var timeline = []growth.Row{
	{
		Sample: growth.Sample{
			RSS: 1, Anonymous: 2, File: 3, Shared: 4, PSS: 5, Private: 6, Swap: 7, Virtual: 1 << 40,
			Threads: 9, MinorFaults: 10, MajorFaults: 11, Steps: 12, Tensors: 13, TensorBytes: 14,
			GPUUsed: 15, CudaAllocated: 16, CudaReserved: 17, CudaDriver: 18, Pinned: 19,
		},
		Tree:     growth.Tree{Processes: 20, RSS: 21, PSS: 22, Private: 23},
		System:   growth.SystemMemory{Available: 24, SwapFree: 25, CgroupUsed: 26, CgroupLimit: 27},
		Overhead: growth.OverheadSample{Slowdown: 28, Own: 29, ProbedShare: 30},
	},
	{
		Sample: unknownSample(),
		Tree:   growth.Tree{Processes: 1, RSS: 5, PSS: growth.Unknown, Private: growth.Unknown},
		System: growth.SystemMemory{
			Available: growth.Unknown, SwapFree: growth.Unknown, CgroupUsed: growth.Unknown,
			CgroupLimit: growth.Unknown,
		},
		Overhead: growth.OverheadSample{Slowdown: growth.Unknown, Own: growth.Unknown, ProbedShare: growth.Unknown},
	},
	{Sample: growth.Sample{Elapsed: 1234 * time.Millisecond}},
}

func unknownSample() growth.Sample {
	s := growth.UnknownSample()
	s.Elapsed = 1234 * time.Millisecond
	return s
}

const timelineHeader = `time_s,rss_bytes,anonymous_bytes,file_bytes,shared_bytes,pss_bytes,private_bytes,swap_bytes,virtual_bytes,threads,` +
	`minor_faults,major_faults,steps,tensors,tensor_bytes,gpu_used_bytes,gpu_allocated_bytes,gpu_reserved_bytes,gpu_driver_bytes,pinned_bytes,` +
	`tree_processes,tree_rss_bytes,tree_pss_bytes,tree_private_bytes,available_bytes,swap_free_bytes,` +
	`cgroup_used_bytes,cgroup_limit_bytes,slowdown_ppm,own_core_ppm,heap_probed_permille
`

const timelineText = timelineHeader +
	`0.000,1,2,3,4,5,6,7,1099511627776,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
1.234,,,,,,,,,,,,,,,,,,,,1,5,,,,,,,,,
1.234,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0
`

func TestTimeline(t *testing.T) {
	text := writeTimeline(t, timeline)
	if string(text) != timelineText {
		t.Errorf("got\n%s\nwant\n%s", text, timelineText)
	}
	got := tracertest.Must(ReadTimeline(bytes.NewReader(text)))(t)
	if !reflect.DeepEqual(got, timeline) {
		t.Errorf("got %+v, want %+v", got, timeline)
	}

	t.Run("milliseconds", func(t *testing.T) {
		text := writeTimeline(t,
			[]growth.Row{
				{Sample: growth.Sample{Elapsed: 59*time.Second + 999600*time.Microsecond}},
			})
		if !strings.Contains(string(text), "\n60.000,") {
			t.Errorf("got %s", text)
		}
	})

	t.Run("written at once", func(t *testing.T) {
		w := &countingWriter{failing: 3}
		timelineWriter, err := NewTimelineWriter(w)
		if err != nil || w.calls != 1 {
			t.Fatalf("header: %d calls, %v", w.calls, err)
		}
		if err := timelineWriter.Write(timeline[0]); err != nil || w.calls != 2 {
			t.Fatalf("row: %d calls, %v", w.calls, err)
		}
		exporttest.WantError(t, timelineWriter.Write(timeline[1]), "disk full")
		half := w.Len()
		exporttest.WantError(t, timelineWriter.Write(timeline[2]), "disk full")
		if w.Len() != half {
			t.Errorf("a row follows half a row:\n%s", w.String())
		}
		got, err := ReadTimeline(&w.Buffer)
		exporttest.WantError(t, err, "read timeline: line 3: cut short")
		if len(got) != 1 {
			t.Errorf("%d samples before the cut, want 1", len(got))
		}
	})

	t.Run("read errors", func(t *testing.T) {
		const rest = ",2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30"
		header, row := timelineHeader, "1.000,1"+rest+"\n"
		for want, text := range map[string]string{
			"line 1: no header: the file is empty":              "",
			`line 1: header is "time,rss"`:                      "time,rss\n",
			"line 1: cut short":                                 header[:20],
			"line 3: 2 fields, not 31":                          header + row + "2.000,1\n",
			"line 2: 32 fields, not 31":                         header + "2.000,1" + rest + ",31\n",
			"line 2: 1 fields, not 31":                          header + "\n",
			`line 2: rss_bytes: "x" is not a whole number`:      header + "1.000,x" + rest + "\n",
			`line 2: threads: "-1" is not a whole number`:       header + strings.Replace(row, ",9,", ",-1,", 1),
			"line 2: rss_bytes: \"9223372036854775808\" is not": header + "1.000,9223372036854775808" + rest + "\n",
			`line 2: time_s: "" is not seconds`:                 header + ",1" + rest + "\n",
			`line 2: time_s: "1.00" is not seconds`:             header + "1.00,1" + rest + "\n",
			`line 2: time_s: "9223372036.000" is not`:           header + "9223372036.000,1" + rest + "\n",
			"line 3: time_s is before":                          header + row + "0.999,1" + rest + "\n",
			"line 2: heap_probed_permille":                      header + "1.000,1" + rest + "\r\n",
			"line 3: cut short: no newline":                     header + row + "2.000,1" + rest,
			"line 2: longer than 4096 bytes":                    header + strings.Repeat("1", 5000) + "\n",
		} {
			_, err := ReadTimeline(strings.NewReader(text))
			exporttest.WantError(t, err, "read timeline: ", want)
		}
	})
}

// A countingWriter counts calls and fails from the given one on, as a full disk does for a while.
type countingWriter struct {
	bytes.Buffer
	calls, failing int
}

func (w *countingWriter) Write(data []byte) (int, error) {
	w.calls++
	if w.calls == w.failing {
		w.Buffer.Write(data[:len(data)/2])
		return len(data) / 2, errors.New("disk full")
	}
	return w.Buffer.Write(data)
}

func TestProcesses(t *testing.T) {
	want := []growth.ProcessSample{
		{
			PID: 7,
			Sample: growth.Sample{
				Elapsed: time.Second, RSS: 1, Anonymous: 2, Swap: growth.Unknown, Steps: 12,
			},
		},
		{PID: 8, Sample: growth.Sample{Elapsed: time.Second, RSS: 3}},
	}
	var buf bytes.Buffer
	w := tracertest.Must(NewProcessesWriter(&buf))(t)
	tracertest.NoError(t, w.Write(want...))
	if !strings.HasPrefix(buf.String(), "time_s,pid,rss_bytes,") ||
		!strings.Contains(buf.String(), "\n1.000,7,1,2,") {
		t.Errorf("got\n%s", buf.String())
	}
	got, err := ReadProcesses(&buf, nil)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	_, err = ReadProcesses(strings.NewReader("time_s\n"), nil)
	exporttest.WantError(t, err, "read processes: line 1: header")
}

// Rows that were read can be written and read again without a change.
func FuzzReadTimeline(f *testing.F) {
	f.Add([]byte(timelineText))
	f.Add([]byte(timelineText[:200]))
	f.Add([]byte(timelineHeader + "9223372035.999" + strings.Repeat(",", 26) +
		",9223372036854775807\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := ReadTimeline(bytes.NewReader(data))
		if err != nil {
			return
		}
		second := tracertest.Must(ReadTimeline(bytes.NewReader(writeTimeline(t, first))))(t)
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%+v became %+v", first, second)
		}
	})
}
