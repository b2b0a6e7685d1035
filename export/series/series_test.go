package series

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

const mib = 1 << 20

func read(t *testing.T, text string, o Options) *File {
	t.Helper()
	f, err := Read(strings.NewReader(text), o)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return f
}

func mustBe(t *testing.T, f *File, x, y []float64) {
	t.Helper()
	if !slices.Equal(f.X, x) || !slices.Equal(f.Y, y) {
		t.Errorf("read %v\n     %v\nwant %v\n     %v", f.X, f.Y, x, y)
	}
}

func mustFail(t *testing.T, text string, o Options, want string) {
	t.Helper()
	f, err := Read(strings.NewReader(text), o)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%.100q is read as %v, %v; want error %q", text, f, err, want)
	}
}

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, text string
		steps      bool
		x, y       []float64
	}{
		{
			"own timeline", "time_s,rss_bytes,pss_bytes\n0.000,1073741824,5\n1.250,1073745920,\n",
			false,
			[]float64{0, 1.25},
			[]float64{1073741824, 1073745920},
		},
		{
			"windows lines", "\xef\xbb\xbftime_s,rss_mb\r\n0,1\r\n1,2\r\n",
			false,
			[]float64{0, 1},
			[]float64{1e6, 2e6},
		},
		{"semicolons", "t;uss_gb\n0;1.5\n2;3\n", false, []float64{0, 2}, []float64{1.5e9, 3e9}},
		{
			"blanks and a unit apart", "step rss (KiB)\n 1   2\n 2   3\n",
			true,
			[]float64{1, 2},
			[]float64{2048, 3072},
		},
		{
			"suffixes", "time_ms,rss\n0,9.5GB\n500,9728 MiB\n",
			false,
			[]float64{0, 0.5},
			[]float64{9.5e9, 9728 * mib},
		},
		{
			"thousands", "step,\"mem\"\n1,\"9,432 MB\"\n2,\"1,009,500KB\"\n",
			true,
			[]float64{1, 2},
			[]float64{9432e6, 1009500e3},
		},
		{
			"epoch seconds", "timestamp,rss_bytes\n1700000000.5,1\n1700000002.5,2\n",
			false,
			[]float64{0, 2},
			[]float64{1, 2},
		},
		{
			"epoch nanoseconds",
			"timestamp,rss_bytes\n1700000000500000000,1\n1700000002500000000,2\n",
			false,
			[]float64{0, 2},
			[]float64{1, 2},
		},
		{
			"dates", "timestamp,rss_bytes\n2026-01-02T23:59:59.5Z,1\n2026-01-03T00:00:01.5Z,2\n",
			false,
			[]float64{0, 2},
			[]float64{1, 2},
		},
		{
			"dates with a zone", "date,rss_bytes\n2026-01-02T10:00:00+01:00,1\n2026-01-02T09:00:05Z,2\n",
			false,
			[]float64{0, 5},
			[]float64{1, 2},
		},
		{
			"dates in two fields",
			"timestamp rss_bytes\n2026-01-02 10:00:00 1\n2026-01-02 10:01:00 2\n",
			false,
			[]float64{0, 60},
			[]float64{1, 2},
		},
		{
			"times of day over midnight", "time,rss_mib\n23:59:58,1\n00:00:03,2\n",
			false,
			[]float64{0, 5},
			[]float64{mib, 2 * mib},
		},
		{
			"a span", "elapsed,rss_mib\n00:10,1\n01:00:10,2\n",
			false,
			[]float64{10, 3610},
			[]float64{mib, 2 * mib},
		},
		{
			"comments and empty lines", "# by hand\n\ntime_s,rss_mb\n0,1\n\n# lunch\n1,2\n",
			false,
			[]float64{0, 1},
			[]float64{1e6, 2e6},
		},
		{
			"the more usual column", "elapsed_s,heap_mb,rss_mb,step\n1,7,8,9\n2,8,9,10\n",
			false,
			[]float64{1, 2},
			[]float64{8e6, 9e6},
		},
		{
			"a unit without a suffix of its own", "step,rss_mb\n1,2\n2,3KiB\n",
			true,
			[]float64{1, 2},
			[]float64{2e6, 3072},
		},
		{
			"log of steps", "loading 3 shards\nStep 40: 9,432 MB\nsaved\nStep 50: 9,500 MB\n",
			true,
			[]float64{40, 50},
			[]float64{9432e6, 9500e6},
		},
		{
			"log with times of day",
			"[12:00:01] step=40 loss=2.31 rss=9.5GB gpu=70GB\n[12:00:09] step=41 loss=2.30 rss=9.75GB gpu=70GB\n",
			false,
			[]float64{0, 8},
			[]float64{9.5e9, 9.75e9},
		},
		{
			"log with dates",
			"2026-01-02 12:00:01,250 INFO step 40/1000 GPU memory: 70 GB, memory usage: 9.5 GiB\n2026-01-02 12:00:02,250 INFO step 41/1000 GPU memory: 70 GB, memory usage: 9.75 GiB\n",
			false,
			[]float64{0, 1},
			[]float64{9728 * mib, 9984 * mib},
		},
		{
			"log with a size behind a comma", "2026-01-02 10:00:00,9.5GB of train.py\n",
			false,
			[]float64{0},
			[]float64{9.5e9},
		},
		{
			"log with seconds since 1970",
			"1700000000.5 VmRSS:   2048 kB\n1700000003.5 VmRSS:   4096 kB\n",
			false,
			[]float64{0, 3},
			[]float64{2 * mib, 4 * mib},
		},
		{
			"JSON lines", "{\"step\": 40, \"rss_mb\": 9432.5}\n{\"step\": 50, \"rss_mb\": 9500}\n",
			true,
			[]float64{40, 50},
			[]float64{9432.5e6, 9500e6},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := read(t, test.text, Options{})
			mustBe(t, f, test.x, test.y)
			if f.Steps != test.steps || f.Age != 0 {
				t.Errorf("steps %v, age %g", f.Steps, f.Age)
			}
		})
	}

	t.Run("samplers", func(t *testing.T) {
		const ps = "ELAPSED   RSS COMMAND\n   7200 20480 python train.py --fast\nELAPSED   RSS COMMAND\n   7205 20484 python train.py --fast\n"
		f := read(t, ps, Options{})
		mustBe(t, f, []float64{7200, 7205}, []float64{20 * mib, 20*mib + 4096})
		if f.Age != 7200 {
			t.Errorf("age %g", f.Age)
		}
		f = read(t, "    ELAPSED   RSS\n 1-02:00:00 20480\n", Options{})
		mustBe(t, f, []float64{26 * 3600}, []float64{20 * mib})
		f = read(t, "  RSS\n 1024\n  RSS\n 2048\n", Options{Every: 5})
		mustBe(t, f, []float64{0, 5}, []float64{mib, 2 * mib})
		f = read(t,
			"USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nme 7 0.0 0.1 9 1024 ? S 10:00 0:00 a b\nme 7 0.0 0.1 9 2048 ? S 10:00 0:00 a b\n",
			Options{Every: 1})
		mustBe(t, f, []float64{0, 1}, []float64{mib, 2 * mib})

		const psrecord = `# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)
       0.000        0.000        2.500      100.000
       1.012       99.100        3.500      100.000
`
		mustBe(t, read(t, psrecord, Options{}),
			[]float64{0, 1.012}, []float64{2.5 * mib, 3.5 * mib})

		const mprof = `CMDLINE python train.py 8 MB
MEM 2.5 1700000000.25
FUNC __main__.f 2.5 1700000000.25 3.5 1700000001.00
CHLD 12 99.5 1700000000.50
MEM 3.5 1700000001.25
`
		mustBe(t, read(t, mprof, Options{}), []float64{0, 1}, []float64{2.5 * mib, 3.5 * mib})
		mustBe(t, read(t, mprof, Options{Every: 2}),
			[]float64{0, 2}, []float64{2.5 * mib, 3.5 * mib})
	})

	t.Run("gaps are left out and counted", func(t *testing.T) {
		f := read(t, "time_s,rss_mb\n0,1\n1,\n2,NaN\n3,None\n4,-\n5,2\n", Options{})
		mustBe(t, f, []float64{0, 5}, []float64{1e6, 2e6})
		if f.Gaps != 4 {
			t.Errorf("%d gaps", f.Gaps)
		}
		mustBe(t, read(t, "rss_mb\n1\nnan\n3\n", Options{Every: 10}),
			[]float64{0, 20}, []float64{1e6, 3e6})
	})

	t.Run("samples at one time keep their order", func(t *testing.T) {
		text := new(strings.Builder)
		text.WriteString("time_s,rss_bytes\n9,0\n")
		for i := range 200 {
			fmt.Fprintf(text, "%d,%d\n", i%2, i)
		}
		f := read(t, text.String(), Options{})
		if zeros, ones := f.Y[:100], f.Y[100:200]; !slices.IsSorted(zeros) ||
			!slices.IsSorted(ones) || f.X[99] != 0 || f.X[100] != 1 {
			t.Errorf("read %v %v", f.X, f.Y)
		}
	})

	t.Run("truncated last line", func(t *testing.T) {
		mustBe(t, read(t, "time_s,rss_mb,threads\n0,1,5\n1,2", Options{}), []float64{0},
			[]float64{1e6})
		mustBe(t, read(t, "time_s,rss_mb\n0,1\n1,2", Options{}),
			[]float64{0, 1}, []float64{1e6, 2e6})
	})

	t.Run("one GPU", func(t *testing.T) {
		const header = "time_s,gpu,instance,used_bytes,total_bytes\n"
		for _, rows := range []string{
			"1,0,,100,900\n2,0,,200,900\n", "1,0,3,100,900\n2,0,3,200,900\n",
		} {
			mustBe(t, read(t, header+rows, Options{}), []float64{1, 2}, []float64{100, 200})
		}
		mustFail(t, header+"1,0,,100,900\n1,1,,200,900\n", Options{},
			"line 3: field \"gpu\": the row is of another GPU")
		mustFail(t, header+"1,0,1,100,900\n1,0,2,200,900\n", Options{}, "another GPU, or instance")
		// A column of another file that is called gpu.
		other := read(t, "time_s,gpu,rss_bytes\n1,10,100\n2,20,200\n", Options{})
		mustBe(t, other, []float64{1, 2}, []float64{100, 200})
	})

	t.Run("timeline of a trace", func(t *testing.T) {
		const text = "time_s,rss_bytes,tensor_bytes,gpu_used_bytes,gpu_allocated_bytes,gpu_reserved_bytes,gpu_driver_bytes,pinned_bytes\n1,10,20,30,40,50,60,70\n2,11,21,31,41,51,61,71\n"
		columns := map[string]float64{"": 10, "gpu_used_bytes": 30, "pinned_bytes": 70}
		for column, want := range columns {
			mustBe(t, read(t, text, Options{Y: column}), []float64{1, 2}, []float64{want, want + 1})
		}
	})
}

func TestOptions(t *testing.T) {
	const table = "when,a,b\n0,1,7\n3,2,8\n"
	mustBe(t, read(t, table, Options{X: "when", Y: "b", Unit: "MiB", XUnit: "min"}),
		[]float64{0, 180}, []float64{7 * mib, 8 * mib})
	mustBe(t, read(t, table, Options{X: "1", Y: "2", Unit: "bytes", XUnit: "s"}),
		[]float64{0, 3}, []float64{1, 2})
	mustBe(t, read(t, table, Options{Every: 10, Y: "2", Unit: "kb"}),
		[]float64{0, 10}, []float64{1e3, 2e3})
	if f := read(t, table, Options{X: "1", Y: "2", Unit: "bytes", XUnit: "steps"}); !f.Steps {
		t.Error("no steps")
	}
	mustBe(t, read(t, "0 100\n1 200\n", Options{Unit: "kb", XUnit: "s"}),
		[]float64{0, 1}, []float64{1e5, 2e5})
	mustBe(t, read(t, "100\n200\n", Options{Unit: "kb", Every: 2}),
		[]float64{0, 2}, []float64{1e5, 2e5})
	mustBe(t, read(t, "1700000000 100\n1700000001 200\n", Options{Unit: "KiB"}),
		[]float64{0, 1}, []float64{102400, 204800})
	mustBe(t, read(t, "time_s,rss_mb\n0,1\n1,2\n", Options{Unit: "MiB"}),
		[]float64{0, 1}, []float64{mib, 2 * mib})
	const log = "[12:00:01] step=40 rss=9GB heap=1GB\n[12:00:02] step=41 rss=9GB heap=2GB\n"
	mustBe(t, read(t, log, Options{X: "step", Y: "heap"}), []float64{40, 41}, []float64{1e9, 2e9})
	mustBe(t, read(t, log, Options{Every: 5}), []float64{0, 5}, []float64{9e9, 9e9})
	mustBe(t, read(t, "it 1 rss 5\nit 2 rss 6\n", Options{Unit: "KiB"}),
		[]float64{1, 2}, []float64{5120, 6144})

	t.Run("wrong ones are refused", func(t *testing.T) {
		const table = "time_s,rss_mb\n0,1\n"
		mustFail(t, table, Options{Unit: "furlong"}, "furlong")
		mustFail(t, table, Options{XUnit: "moons"}, "moons")
		mustFail(t, table, Options{Every: -1}, "time between samples")
		mustFail(t, table, Options{Y: "vss"}, `find column "vss"`)
		mustFail(t, table, Options{X: "3"}, `find column "3"`)
		mustFail(t, table, Options{X: "2"}, "cannot be time and size")
	})
}

func TestReadErrors(t *testing.T) {
	const head = "time_s,rss_mb\n0,1\n"
	const (
		sizeUnit = "the unit of the sizes is unknown (say --unit"
		timeUnit = "the unit of the times is unknown (say --x-unit"
	)
	for want, text := range map[string]string{
		"read lines: the file is empty":         " \n\n",
		"read lines: the file is binary":        "time_s,rss_mb\n\x00\x01",
		"this is no table, and none of its":     "hello\nworld\n",
		"none of its first lines has a size":    "time_s,rss_mb\n",
		"find samples: none in 2 lines":         "time_s,rss_mb\n0,\n",
		`line 3: field "rss_mb": "-2" is neg`:   head + "1,-2\n",
		`field "rss_mb": "inf" is not a size`:   head + "1,inf\n",
		`"1e300" is too large for a size`:       head + "1,1e300\n",
		`"1e999" is too large for a size`:       head + "1,1e999\n",
		`field "rss_mb": "2XB" is not a size`:   head + "1,2XB\n",
		`line 3: field "time_s": "one" is not`:  head + "one,2\n",
		`field "time_s": the time is missing`:   head + ",2\n",
		`line 3: field "time_s": "nan" is not`:  head + "nan,2\n",
		`field "time_s": the time is out of`:    head + "1e999,2\n",
		"line 3: 1 fields, not 2":               head + "1\n",
		"line 3: 3 fields, not 2":               head + "1,2,3\n",
		`"\x1b[2J" is not a size`:               head + "1,\x1b[2J\n",
		`x"… is not a size`:                     head + "1," + strings.Repeat("x", 60000) + "\n",
		"line 3: longer than 65536 bytes":       head + strings.Repeat("1", 1<<20),
		`field "time": the time is out of`:      "time,rss_mb\n1e999,2\n",
		"a date, and a number in the lines":     "time,rss_mb\n0,1\n2026-01-01T00:00:00Z,1\n",
		`"2026-13-01T00:00:00Z" is not a date`:  "time,rss_mb\n2026-01-01T00:00:00Z,1\n2026-13-01T00:00:00Z,1\n",
		`field "time": "10:61:00" is not a`:     "time,rss_mb\n10:00:00,1\n10:61:00,1\n",
		`"2,5" is not a size`:                   "time_s;rss_mb\n0;1\n1;2,5\n",
		`"8" is another process than "7" (keep`: "pid,time_s,rss_mb\n7,0,1\n8,1,1\n",
		"the age of the process falls":          "ELAPSED RSS\n 70 1\n 5 1\n",

		`line 2: field "rss": ` + sizeUnit: "time_s,rss\n0,1\n1,2\n",
		`line 1: size "rss": ` + sizeUnit:  "step 4 rss 9\n",
		`line 1: field "1": ` + timeUnit:   "0 1KB\n1 2KB\n",
		`"step_or_seconds": ` + timeUnit:   "step_or_seconds,rss_mb\n0,1\n",

		`find times: none of the columns "cpu", "rss_mb" has a usual name`:    "cpu,rss_mb\n0,1\n",
		`find sizes: none of the columns "time_s", "cpu" has a usual name`:    "time_s,cpu\n0,1\n",
		"find sizes: the columns have no names (choose one by its number":     "0,1,2\n0,1,2\n",
		"find times: ps wrote none (call it with -o etimes,rss, or give the":  "  PID   RSS\n  7 1\n",
		"find times: no line with a size has one (choose one with --x, or":    "rss=9GB\nrss=9GB\n",
		"line 1: the line has several sizes (choose one by its name with --y": "step 4 of a run: 9GB and 8GB\n",
		`or give the time between rows with --every)`:                         "rss_mb\n1\n2\n",
	} {
		mustFail(t, text, Options{}, want)
	}

	t.Run("reader", func(t *testing.T) {
		broken := errors.New("disk on fire")
		for _, before := range []string{
			"", "time_s,rss_mb\n", "time_s,rss_mb\n0,1\n" + strings.Repeat("1,1\n", 1<<16),
		} {
			r := io.MultiReader(strings.NewReader(before), iotest.ErrReader(broken))
			if _, err := Read(r, Options{}); !errors.Is(err, broken) {
				t.Errorf("after %d bytes: %v", len(before), err)
			}
		}
	})
}
