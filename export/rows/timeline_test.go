package rows

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

func writeTimeline(t *testing.T, timeline []growth.Row) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewTimelineWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range timeline {
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	return buf.Bytes()
}

var timeline = []growth.Row{
	{
		Sample: growth.Sample{
			RSS: 1 << 30, Anonymous: 1 << 29, File: 1 << 28, Shared: 1 << 28, PSS: 1 << 29,
			Private: 1 << 28, Virtual: 1 << 40,
			Threads: 12, MinorFaults: 100, MajorFaults: 2, Steps: 7, Tensors: 41,
			TensorBytes: 1 << 27,
			GPUUsed:     51, CudaAllocated: 52, CudaReserved: 53, CudaDriver: 54, Pinned: 55,
		},
		Tree: growth.Tree{Processes: 3, RSS: 1 << 31, PSS: 1 << 30, Private: 1 << 29},
		System: growth.SystemMemory{
			Available: 1 << 33, SwapFree: 0, CgroupUsed: 1 << 31, CgroupLimit: 1 << 32,
		},
		Overhead: growth.OverheadSample{CPUShare: 19_000, ProbedShare: 1000},
	},
	{
		Sample: growth.Sample{
			Elapsed: 1234 * time.Millisecond, RSS: 1<<30 + 4096, Anonymous: 1, File: 2, Shared: 3,
			PSS: growth.Unknown, Private: growth.Unknown,
			Swap: 8192, Virtual: 1 << 40, Threads: growth.Unknown, MinorFaults: 101, MajorFaults: 2,
			Steps:   growth.Unknown,
			Tensors: growth.Unknown, TensorBytes: growth.Unknown,
			GPUUsed: growth.Unknown, CudaAllocated: growth.Unknown, CudaReserved: growth.Unknown,
			CudaDriver: growth.Unknown, Pinned: growth.Unknown,
		},
		Tree: growth.Tree{Processes: 1, RSS: 5, PSS: growth.Unknown, Private: growth.Unknown},
		System: growth.SystemMemory{
			Available: growth.Unknown, SwapFree: growth.Unknown, CgroupUsed: growth.Unknown,
			CgroupLimit: growth.Unknown,
		},
		Overhead: growth.OverheadSample{CPUShare: growth.Unknown, ProbedShare: growth.Unknown},
	},
	{Sample: growth.Sample{Elapsed: 1234 * time.Millisecond}},
}

const timelineHeader = `time_s,rss_bytes,anonymous_bytes,file_bytes,shared_bytes,pss_bytes,private_bytes,swap_bytes,virtual_bytes,threads,` +
	`minor_faults,major_faults,steps,tensors,tensor_bytes,gpu_used_bytes,gpu_allocated_bytes,gpu_reserved_bytes,gpu_driver_bytes,pinned_bytes,` +
	`tree_processes,tree_rss_bytes,tree_pss_bytes,tree_private_bytes,available_bytes,swap_free_bytes,` +
	`cgroup_used_bytes,cgroup_limit_bytes,overhead_ppm,heap_probed_permille
`

const timelineText = timelineHeader +
	`0.000,1073741824,536870912,268435456,268435456,536870912,268435456,0,1099511627776,12,100,2,7,41,134217728,51,52,53,54,55,3,2147483648,1073741824,536870912,8589934592,0,2147483648,4294967296,19000,1000
1.234,1073745920,1,2,3,,,8192,1099511627776,,101,2,,,,,,,,,1,5,,,,,,,,
1.234,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0
`

func TestTimeline(t *testing.T) {
	text := writeTimeline(t, timeline)
	if string(text) != timelineText {
		t.Errorf("got\n%s\nwant\n%s", text, timelineText)
	}
	got, err := ReadTimeline(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
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
		wantError(t, timelineWriter.Write(timeline[1]), "disk full")
		half := w.Len()
		wantError(t, timelineWriter.Write(timeline[2]), "disk full")
		if w.Len() != half {
			t.Errorf("a row follows half a row:\n%s", w.String())
		}
		got, err := ReadTimeline(&w.Buffer)
		wantError(t, err, "read timeline: line 3: cut short")
		if len(got) != 1 {
			t.Errorf("%d samples before the cut, want 1", len(got))
		}
	})

	t.Run("read errors", func(t *testing.T) {
		const rest = ",2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29"
		header, row := timelineHeader, "1.000,1"+rest+"\n"
		for _, test := range []struct{ name, text, want string }{
			{"empty", "", "line 1: no header: the file is empty"},
			{"other header", "time,rss\n", `line 1: header is "time,rss"`},
			{"header cut", header[:20], "line 1: cut short"},
			{"too few fields", header + row + "2.000,1\n", "line 3: 2 fields, not 30"},
			{"too many fields", header + "2.000,1" + rest + ",30\n", "line 2: 31 fields, not 30"},
			{"empty line", header + "\n", "line 2: 1 fields, not 30"},
			{
				"word", header + "1.000,x" + rest + "\n",
				`line 2: rss_bytes: "x" is not a whole number`,
			},
			{
				"negative", header + "1.000,1" + strings.Replace(rest, ",9,", ",-1,", 1) + "\n",
				`line 2: threads: "-1" is not a whole number`,
			},
			{"too large", header + "1.000,9223372036854775808" + rest + "\n", "line 2: rss_bytes"},
			{"no time", header + ",1" + rest + "\n", `line 2: time_s: "" is not seconds`},
			{
				"two decimals", header + "1.00,1" + rest + "\n",
				`line 2: time_s: "1.00" is not seconds`,
			},
			{"time too large", header + "9223372036.000,1" + rest + "\n", "line 2: time_s"},
			{"back in time", header + row + "0.999,1" + rest + "\n", "line 3: time_s is before"},
			{"carriage return", header + "1.000,1" + rest + "\r\n", "line 2: heap_probed_permille"},
			{"cut", header + row + "2.000,1" + rest, "line 3: cut short: no newline"},
			{
				"long line", header + strings.Repeat("1", 5000) + "\n",
				"line 2: longer than 4096 bytes",
			},
		} {
			t.Run(test.name, func(t *testing.T) {
				_, err := ReadTimeline(strings.NewReader(test.text))
				wantError(t, err, "read timeline: ", test.want)
			})
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
	w, err := NewProcessesWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(want...); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(buf.String(), "time_s,pid,rss_bytes,") ||
		!strings.Contains(buf.String(), "\n1.000,7,1,2,") {
		t.Errorf("got\n%s", buf.String())
	}
	got, err := ReadProcesses(&buf, nil)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	_, err = ReadProcesses(strings.NewReader("time_s\n"), nil)
	wantError(t, err, "read processes: line 1: header")
}

// What is read can be written and read again without a change.
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
		second, err := ReadTimeline(bytes.NewReader(writeTimeline(t, first)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%+v became %+v", first, second)
		}
	})
}
