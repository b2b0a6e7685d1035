package series

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
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

func mustFail(t *testing.T, text string, o Options, parts ...string) {
	t.Helper()
	f, err := Read(strings.NewReader(text), o)
	if err == nil {
		t.Fatalf("%.100q is read as %v", text, f)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%.100q: error %q lacks %q", text, err, part)
		}
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
			"windows lines", "\xef\xbb\xbftime_s,rss_mb\r\n0,1\r\n1,2\r\n", false,
			[]float64{0, 1},
			[]float64{1e6, 2e6},
		},
		{
			"tabs", "step\trss (KiB)\n10\t100\n20\t200\n", true,
			[]float64{10, 20},
			[]float64{102400, 204800},
		},
		{"semicolons", "t;uss_gb\n0;1.5\n2;3\n", false, []float64{0, 2}, []float64{1.5e9, 3e9}},
		{
			"blanks", "iteration  memory_mib\n 0   1\n 5   2\n", true,
			[]float64{0, 5},
			[]float64{mib, 2 * mib},
		},
		{
			"blanks and a unit apart", "step rss (KiB)\n1 2\n2 3\n", true,
			[]float64{1, 2},
			[]float64{2048, 3072},
		},
		{
			"suffixes", "time_ms,rss\n0,9.5GB\n500,9728 MiB\n", false,
			[]float64{0, 0.5},
			[]float64{9.5e9, 9728 * mib},
		},
		{
			"thousands", "step,\"mem\"\n1,\"9,432 MB\"\n2,\"1,009,500KB\"\n", true,
			[]float64{1, 2},
			[]float64{9432e6, 1009500e3},
		},
		{
			"epoch seconds", "timestamp,rss_bytes\n1700000000.5,1\n1700000002.5,2\n", false,
			[]float64{0, 2},
			[]float64{1, 2},
		},
		{
			"epoch milliseconds", "timestamp,rss_bytes\n1700000000500,1\n1700000002500,2\n", false,
			[]float64{0, 2},
			[]float64{1, 2},
		},
		{
			"epoch nanoseconds",
			"timestamp,rss_bytes\n1700000000500000000,1\n1700000002500000000,2\n", false,
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
			"dates with a zone",
			"date,rss_bytes\n2026-01-02T10:00:00+01:00,1\n2026-01-02T09:00:05Z,2\n", false,
			[]float64{0, 5},
			[]float64{1, 2},
		},
		{
			"dates in two fields",
			"timestamp rss_bytes\n2026-01-02 10:00:00 1\n2026-01-02 10:01:00 2\n", false,
			[]float64{0, 60},
			[]float64{1, 2},
		},
		{
			"times of day over midnight", "time,rss_mib\n23:59:58,1\n00:00:03,2\n", false,
			[]float64{0, 5},
			[]float64{mib, 2 * mib},
		},
		{
			"a span", "elapsed,rss_mib\n00:10,1\n01:00:10,2\n", false,
			[]float64{10, 3610},
			[]float64{mib, 2 * mib},
		},
		{
			"minutes", "elapsed_min,rss_mib\n1,1\n2,2\n", false,
			[]float64{60, 120},
			[]float64{mib, 2 * mib},
		},
		{
			"comments and empty lines", "# by hand\n\ntime_s,rss_mb\n0,1\n\n# lunch\n1,2\n", false,
			[]float64{0, 1},
			[]float64{1e6, 2e6},
		},
		{
			"unsorted", "time_s,rss_mb\n2,3\n0,1\n1,2\n", false,
			[]float64{0, 1, 2},
			[]float64{1e6, 2e6, 3e6},
		},
		{
			"the same time twice", "time_s,rss_mb\n1,3\n1,1\n0,2\n", false,
			[]float64{0, 1, 1},
			[]float64{2e6, 3e6, 1e6},
		},
		{
			"the more usual column", "elapsed_s,heap_mb,rss_mb,step\n1,7,8,9\n2,8,9,10\n", false,
			[]float64{1, 2},
			[]float64{8e6, 9e6},
		},
		{
			"a unit without a suffix of its own", "step,rss_mb\n1,2\n2,3KiB\n", true,
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
			"log with seconds since 1970",
			"1700000000.5 VmRSS:   2048 kB\n1700000003.5 VmRSS:   4096 kB\n", false,
			[]float64{0, 3},
			[]float64{2 * mib, 4 * mib},
		},
		{
			"JSON lines",
			`{"step": 40, "rss_mb": 9432.5}` + "\n" + `{"step": 50, "rss_mb": 9500}` + "\n", true,
			[]float64{40, 50},
			[]float64{9432.5e6, 9500e6},
		},
		{
			"live monitor",
			"Epoch 1 | it 10 | heap size 25.3MB\nEpoch 1 | it 20 | heap size 26.3MB\n", true,
			[]float64{10, 20},
			[]float64{25.3e6, 26.3e6},
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
		for name, c := range map[string]struct{ rows, refused string }{
			"one":          {"1.000,0,,100,900\n2.000,0,,200,900\n", ""},
			"one instance": {"1.000,0,3,100,900\n2.000,0,3,200,900\n", ""},
			"two": {
				"1.000,0,,100,900\n1.000,1,,200,900\n",
				"line 3: field \"gpu\": the row is of another GPU",
			},
			"two instances": {"1.000,0,1,100,900\n1.000,0,2,200,900\n", "another GPU, or instance"},
		} {
			file, err := Read(strings.NewReader(header+c.rows), Options{})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if err != nil || len(file.Y) != 2 || file.Y[0] != 100 || file.Y[1] != 200 ||
				file.X[1]-file.X[0] != 1 {
				t.Errorf("%s: %+v, %v", name, file, err)
			}
		}
		other, err := Read(strings.NewReader("time_s,gpu,rss_bytes\n1,10,100\n2,20,200\n"),
			Options{})
		if err != nil || len(other.Y) != 2 {
			t.Errorf("a column of another file that is called gpu: %v", err)
		}
	})

	t.Run("timeline of a trace", func(t *testing.T) {
		const text = "time_s,rss_bytes,tensor_bytes,gpu_used_bytes,gpu_allocated_bytes,gpu_reserved_bytes,gpu_driver_bytes,pinned_bytes\n1,10,20,30,40,50,60,70\n2,11,21,31,41,51,61,71\n"
		for column, want := range map[string]float64{
			"": 10, "gpu_used_bytes": 30, "gpu_allocated_bytes": 40, "gpu_reserved_bytes": 50,
			"gpu_driver_bytes": 60, "pinned_bytes": 70,
		} {
			file, err := Read(strings.NewReader(text), Options{Y: column})
			if err != nil || file.Y[0] != want || file.Y[1] != want+1 {
				t.Errorf("%q: %+v, %v", column, file, err)
			}
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
		mustFail(t, table, Options{Unit: "furlong"}, "unit", "furlong", "MiB")
		mustFail(t, table, Options{XUnit: "moons"}, "unit", "moons", "steps")
		mustFail(t, table, Options{Every: -1}, "time between samples")
		mustFail(t, table, Options{Y: "vss"}, `find column "vss"`, `"time_s", "rss_mb"`)
		mustFail(t, table, Options{X: "3"}, `find column "3"`)
		mustFail(t, table, Options{X: "2"}, "cannot be time and size")
	})
}

func TestReadErrors(t *testing.T) {
	const head = "time_s,rss_mb\n0,1\n"
	for _, test := range []struct {
		name, text string
		parts      []string
	}{
		{"empty", "", []string{"empty"}},
		{"blank", " \n\n", []string{"empty"}},
		{"binary", "time_s,rss_mb\n\x00\x01", []string{"binary"}},
		{"words", "hello\nworld\n", []string{"no table", "none of its first lines has a size"}},
		{"no rows", "time_s,rss_mb\n", []string{"none of its first lines"}},
		{"only gaps", "time_s,rss_mb\n0,\n", []string{"find samples: none in 2 lines"}},
		{
			"negative size", head + "1,-2\n",
			[]string{"line 3", `field "rss_mb"`, `"-2" is negative`},
		},
		{
			"infinite size", head + "1,inf\n",
			[]string{"line 3", `field "rss_mb"`, `"inf" is not a size`},
		},
		{"huge size", head + "1,1e300\n", []string{"line 3", `field "rss_mb"`, "too large"}},
		{"huge exponent", head + "1,1e999\n", []string{"line 3", "too large"}},
		{
			"word for a size", head + "1,two\n",
			[]string{"line 3", `field "rss_mb"`, `"two" is not a size`},
		},
		{"unknown suffix", head + "1,2XB\n", []string{"line 3", `"2XB" is not a size`}},
		{
			"word for a time", head + "one,2\n",
			[]string{"line 3", `field "time_s"`, `"one" is not a time`},
		},
		{"no time", head + ",2\n", []string{"line 3", `field "time_s"`, "missing"}},
		{"NaN for a time", head + "nan,2\n", []string{"line 3", `field "time_s"`}},
		{"infinite time", head + "1e999,2\n", []string{"line 3", `field "time_s"`, "out of range"}},
		{"too few fields", head + "1\n", []string{"line 3", "1 fields, not 2"}},
		{"too many fields", head + "1,2,3\n", []string{"line 3", "3 fields, not 2"}},
		{"escape codes", head + "1,\x1b[2J\n", []string{"line 3", `"\x1b[2J"`}},
		{"long cell", head + "1," + strings.Repeat("x", 60000) + "\n", []string{"line 3", `x"…`}},
		{
			"long line", head + strings.Repeat("1", 1<<20),
			[]string{"line 3", "longer than 65536 bytes"},
		},
		{
			"infinite timestamp", "time,rss_mb\n1e999,2\n",
			[]string{"line 2", `field "time"`, "out of range"},
		},
		{
			"date after numbers", "time,rss_mb\n0,1\n2026-01-01T00:00:00Z,1\n",
			[]string{"line 3", `field "time"`, "a date, and a number in the lines above"},
		},
		{
			"bad date", "time,rss_mb\n2026-01-01T00:00:00Z,1\n2026-13-01T00:00:00Z,1\n",
			[]string{"line 3", "is not a date"},
		},
		{"bad clock", "time,rss_mb\n10:00:00,1\n10:61:00,1\n", []string{"line 3", "is not a time"}},
		{"decimal comma", "time_s;rss_mb\n0;1\n1;2,5\n", []string{"line 3", `"2,5" is not a size`}},
		{
			"two processes", "pid,time_s,rss_mb\n7,0,1\n8,1,1\n",
			[]string{"line 3", `field "pid"`, "another process", "keep the lines of one"},
		},
		{
			"another process in ps", "ELAPSED RSS\n 70 1\n 5 1\n",
			[]string{"line 3", "the age of the process falls"},
		},
		{
			"unit of sizes", "time_s,rss\n0,1\n1,2\n",
			[]string{"line 2", `field "rss"`, "the unit of the sizes is unknown", "--unit"},
		},
		{
			"unit of times", "0 1KB\n1 2KB\n",
			[]string{"line 1", `field "1"`, "the unit of the times is unknown", "--x-unit"},
		},
		{
			"both units in one name", "step_or_seconds,rss_mb\n0,1\n",
			[]string{"line 2", "step_or_seconds", "the unit of the times is unknown", "--x-unit"},
		},
		{
			"no time column", "cpu,rss_mb\n0,1\n",
			[]string{"find times", `"cpu", "rss_mb"`, "--x", "--every"},
		},
		{"no size column", "time_s,cpu\n0,1\n", []string{"find sizes", `"time_s", "cpu"`, "--y"}},
		{"columns without names", "0,1,2\n0,1,2\n", []string{"find sizes", "no names", "--y"}},
		{"one column", "rss_mb\n1\n2\n", []string{"find times", "--every"}},
		{"ps without times", "  PID   RSS\n  7 1\n", []string{"find times", "etimes", "--every"}},
		{"log without times", "rss=9GB\nrss=9GB\n", []string{"find times", "--every"}},
		{
			"log of several sizes", "step 4 of a run: 9GB and 8GB\n",
			[]string{"line 1", "several sizes", "--y"},
		},
		{
			"log without units", "step 4 rss 9\n",
			[]string{"line 1", `size "rss"`, "the unit of the sizes is unknown"},
		},
	} {
		t.Run(test.name, func(t *testing.T) { mustFail(t, test.text, Options{}, test.parts...) })
	}

	t.Run("reader", func(t *testing.T) {
		broken := errors.New("disk on fire")
		for _, before := range []string{
			"", "time_s,rss_mb\n", "time_s,rss_mb\n0,1\n" + strings.Repeat("1,1\n", 1<<16),
		} {
			if _, err := Read(io.MultiReader(strings.NewReader(before), failing{broken}),
				Options{}); !errors.Is(err,
				broken) {
				t.Errorf("after %d bytes: %v", len(before), err)
			}
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
