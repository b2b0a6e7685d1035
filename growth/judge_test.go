package growth

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const megabyte = 1e6 // the sizes of the files

// Real series from training runs, and what is right to say of them.
func TestSeriesFromTheFieldAreJudgedAsTheirNotesDemand(t *testing.T) {
	for _, row := range rows(t, "verdicts.csv") {
		t.Run(row["file"]+" "+row["option"], func(t *testing.T) {
			criteria := InSeconds()
			if row["unit"] == "step" {
				criteria = InSteps()
			}
			var setting Setting
			name, value, _ := strings.Cut(row["option"], "=")
			switch name {
			case "tolerable":
				setting.Tolerable = number(t, value) * megabyte
			case "limit":
				setting.Limit = number(t, value) * megabyte
			case "epoch_end":
				setting.EpochEnd = known(number(t, value))
			}
			scale := 1.0
			if row["unit"] == "second" {
				scale = 60 // the rates are those of a minute
			}
			v := Judge(seriesIn(t, row["file"]), setting, criteria)
			row["verdict"], row["why"] = row["expected_class"], row["expected_why"]
			checkVerdict(t, v, row, expectation{scale: scale, rate: "slope", low: "lo95", high: "hi95", bound: "bound95", onset: "onset", eta: "eta_s"})
		})
	}
}

// Simulated series, and the verdicts of an implementation that shares no code with this one.
func TestSimulatedSeriesAreJudgedAsByAnIndependentImplementation(t *testing.T) {
	for _, row := range rows(t, "vectors/expected.csv") {
		t.Run(row["file"], func(t *testing.T) {
			setting := Setting{Age: orZero(t, row["age_s"]), Cycle: orZero(t, row["cycle_s"])}
			if row["epoch_end_s"] != "" {
				setting.EpochEnd = known(number(t, row["epoch_end_s"]))
			}
			v := Judge(seriesIn(t, filepath.Join("vectors", row["file"])), setting, InSeconds())
			checkVerdict(t, v, row, expectation{scale: 60, rate: "slope_mb_per_min", low: "lo", high: "hi", bound: "bound", onset: "onset_s", longer: "more_s"})
		})
	}
}

// An expectation names the columns of a file, and how long the time of its rates is in X.
type expectation struct {
	scale                                      float64
	rate, low, high, bound, onset, eta, longer string
}

func checkVerdict(t *testing.T, v Verdict, row map[string]string, e expectation) {
	t.Helper()
	if want := classOf(row["verdict"], row["why"]); v.Class != want || v.Why != row["why"] {
		t.Errorf("%s (%s), want %s (%s)", v.Class, v.Why, want, row["why"])
	}
	checkRate := func(column string, got, share float64) {
		t.Helper()
		want := math.NaN()
		if s := row[column]; s != "" && s != "inf" {
			want = number(t, s)
		}
		width := 0.0
		if s := row[e.high]; s != "" {
			width = number(t, s) - number(t, row[e.low])
		}
		if got = got / megabyte * e.scale; !near(got, want, share*math.Abs(want)+0.01*width) {
			t.Errorf("%s is %v, want %v", column, got, want)
		}
	}
	checkRate(e.rate, v.Rate, 0.02)
	checkRate(e.low, v.RateLow, 0.05)
	checkRate(e.high, v.RateHigh, 0.05)
	checkRate(e.bound, v.Bound, 0.05)
	check := func(column string, got float64) {
		t.Helper()
		want := math.NaN()
		if s := row[column]; s != "" {
			want = number(t, s)
		}
		if column != "" && !near(got, want, 0.05*math.Abs(want)) {
			t.Errorf("%s is %v, want %v", column, got, want)
		}
	}
	check(e.onset, v.From)
	check(e.eta, v.ToLimit)
	check(e.longer, v.Longer)
}

// classOf is our class: what is too early to tell is two things.
func classOf(verdict, why string) Class {
	switch {
	case verdict == "warming-up" && why == "still growing":
		return ClassGrowing
	case verdict == "warming-up":
		return ClassTooShort
	}
	return Class(verdict)
}

func near(got, want, tolerance float64) bool {
	return math.IsNaN(got) && math.IsNaN(want) || math.Abs(got-want) <= tolerance+1e-9
}

func rows(t *testing.T, file string) []map[string]string {
	t.Helper()
	lines := linesOf(t, file)
	var all []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		all = append(all, row)
	}
	if len(all) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return all
}

func seriesIn(t testing.TB, file string) Series {
	t.Helper()
	var s Series
	for _, line := range linesOf(t, file)[1:] {
		s.X, s.Y = append(s.X, number(t, line[0])), append(s.Y, number(t, line[1])*megabyte)
	}
	return s
}

func linesOf(t testing.TB, file string) [][]string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", "series", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func number(t testing.TB, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func orZero(t *testing.T, s string) float64 {
	if s == "" {
		return 0
	}
	return number(t, s)
}

func known(x float64) *float64 { return &x }
