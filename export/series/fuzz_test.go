package series

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// Whatever the text and the options: no panic, and the series has the promised form.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"time_s,rss_bytes,threads\n0.000,1073741824,5\n1.250,,6\n",
		"# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n       0.000        0.000        2.500      100.000\n",
		"CMDLINE python\nMEM 2.5 1700000000.25\nMEM 2.5 1700000001\n",
		"ELAPSED   RSS COMMAND\n 1-00:00:10 1 a b\nELAPSED   RSS COMMAND\n",
		"[12:00:01] step=40 rss=9.4GB\n[00:00:01,5] step=41 rss=9,400 MB\n",
		"2026-01-02 10:00:00 1KB\n2026-01-02 10:00:01+01:00 2KB\n",
		"\"t\";\"rss_mb\"\r\n\"1\";\"1,000.5\"\r\n0;nan",
		"1700000000.5 VmRSS:   2048 kB\n",
		"timestamp\trss_gb\n1e18\t1e3\n-1\t.5\n",
	} {
		for _, every := range []float64{0, 5} {
			f.Add([]byte(seed), "", "", "", "", every)
			f.Add([]byte(seed), "1", "2", "MiB", "s", every)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, x, y, unit, xUnit string, every float64) {
		file, err := Read(bytes.NewReader(data), Options{
			X: x, Y: y, Unit: unit, XUnit: xUnit, Every: every,
		})
		if err != nil {
			return
		}
		good := func(v float64) bool { return !math.IsNaN(v) && math.Abs(v) <= 2*maxX }
		size := func(v float64) bool { return v >= 0 && v <= maxSize }
		if len(file.X) == 0 || len(file.X) != len(file.Y) || !slices.IsSorted(file.X) ||
			!good(file.Age) {
			t.Errorf("%d times, %d sizes, age %g", len(file.X), len(file.Y), file.Age)
		}
		if slices.ContainsFunc(file.X, func(v float64) bool { return !good(v) }) ||
			slices.ContainsFunc(file.Y, func(v float64) bool { return !size(v) }) {
			t.Errorf("read %v %v", file.X, file.Y)
		}
	})
}

// The time that ten million rows of a kind would take.
func BenchmarkRead(b *testing.B) {
	const rows = 10_000_000
	for name, lines := range map[string][2]string{
		"csv": {
			"time_s,rss_bytes,pss_bytes,private_bytes\n",
			"12345.678,9876543210,9876543211,9876543212\n",
		},
		"log":  {"", "2026-01-02 12:00:01,250 INFO step=40 loss=2.31 rss=9.4GB\n"},
		"date": {"timestamp,rss_mb\n", "2026-01-02T12:00:01.5Z,9432.5\n"},
	} {
		b.Run(name, func(b *testing.B) {
			text := []byte(lines[0] + string(bytes.Repeat([]byte(lines[1]), rows/100)))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := Read(bytes.NewReader(text), Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*100, "s/10M-rows")
		})
	}
}
