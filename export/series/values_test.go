package series

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestNumber(t *testing.T) {
	for _, test := range []struct {
		text   string
		value  float64
		length int
	}{
		{"", 0, 0},
		{"-", 0, 0},
		{".", 0, 0},
		{"inf", 0, 0},
		{"0x10", 0, 1},
		{"+7", 7, 2},
		{"-7.5MB", -7.5, 4},
		{"1.", 1, 2},
		{".5", 0.5, 2},
		{"1.2.3", 1.2, 3},
		{"1e", 1, 1},
		{"1e3s", 1000, 3},
		{"1E-2", 0.01, 4},
		{"9,432 MB", 9432, 5},
		{"1,234,567.5", 1234567.5, 11},
		{"12345678901234567,890", 12345678901234567890, 21},
		{"9,43", 9, 1},
		{"9,4321", 9, 1},
		{",432", 0, 0},
		{"1.5,432", 1.5, 3},
		{"1e400", math.Inf(1), 5},
	} {
		if value, n := number(test.text); value != test.value || n != test.length {
			t.Errorf("%q is %g in %d bytes, want %g in %d", test.text, value, n, test.value,
				test.length)
		}
	}

	// The standard library reads the same numbers, more slowly.
	t.Run("as strconv", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			text := strconv.FormatFloat(math.Ldexp(random.NormFloat64(), random.IntN(120)-60),
				"feg"[random.IntN(3)], random.IntN(20)-1, 64)
			want := tracertest.Must(strconv.ParseFloat(text, 64))(t)
			if got, n := number(text); got != want || n != len(text) {
				t.Fatalf("%s is read as %g in %d bytes", text, got, n)
			}
		}
	})
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "4096": 4096, "32GB": 32e9, " 1.5 GiB ": 1.5 * (1 << 30), "9,432 mb": 9432e6,
		"2m": 2 << 20, "7 Bytes": 7, "1TB": 1e12, "3Ki": 3 << 10,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %g, %v; want %g", text, got, err, want)
		}
	}
	for _, text := range []string{"GB", "1 2", "-1", "1XB", "inf", "1e30", "1kilobytes", "0x10"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is %g", text, got)
		}
	}
}
