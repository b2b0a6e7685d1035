package outlier

import (
	"flag"
	"fmt"
	"go/format"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	update = flag.Bool("update", false, "write the table of quantiles; takes minutes")
	more   = flag.Bool("more", false, "simulate more noises and numbers of ranks in TestRates")
)

// noises are distributions around 0: the normal one, and ones with heavier tails. The lognormal one
// is skewed.
var noises = map[string]func(r *rand.Rand) float64{
	"normal":   (*rand.Rand).NormFloat64,
	"logistic": func(r *rand.Rand) float64 { u := r.Float64(); return math.Log(u / (1 - u)) },
	"Laplace": func(r *rand.Rand) float64 {
		return r.ExpFloat64() * float64(1-2*r.IntN(2))
	},
	"t, 5 degrees": student(5),
	"t, 3 degrees": student(3),
	"lognormal":    func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64()/2) - 1 },
}

// student is Student's t distribution.
func student(degrees int) func(r *rand.Rand) float64 {
	return func(r *rand.Rand) float64 {
		var sum float64
		for range degrees {
			x := r.NormFloat64()
			sum += x * x
		}
		return r.NormFloat64() / math.Sqrt(sum/float64(degrees))
	}
}

// mads are the MADs of the noises: of symmetrical ones, the third quartile.
var mads = map[string]float64{
	"normal": 0.67449, "logistic": math.Log(3), "Laplace": math.Ln2, "t, 5 degrees": 0.72669,
	"t, 3 degrees": 0.76489, "lognormal": 0.32694,
}

func draw(r *rand.Rand, n int, noise func(*rand.Rand) float64) []Member {
	members := make([]Member, n)
	for i := range members {
		members[i].Growth = noise(r)
	}
	return members
}

// largest is the largest score by its definition.
func largest(members []Member) float64 {
	values := make([]float64, len(members))
	for i, m := range members {
		values[i] = m.Growth
	}
	center := median(values)
	return (slices.Max(values) - center) / (madToDeviation * median(distances(values, center)))
}

func TestUpdateQuantiles(t *testing.T) {
	if !*update {
		return
	}

	var text strings.Builder
	text.WriteString("package outlier\n\n// By simulation of normal and of Laplace noise, the larger scores of the two:\n// go test ./growth/outlier " +
		"-run TestUpdateQuantiles -update.\n\n// quantileChances are the columns of quantiles.\n" +
		"var quantileChances = [...]float64{0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001}\n\n" +
		"// quantiles has a row for each number of members, in order.\nvar quantiles = []quantileRow{\n")

	const draws = 400_000
	for n := 3; n < 32; n++ {
		var scores [len(quantileChances)]float64
		for _, noise := range []string{"normal", "Laplace"} {
			r := rand.New(rand.NewPCG(25, uint64(n)))
			all := make([]float64, draws)
			for i := range all {
				all[i] = largest(draw(r, n, noises[noise]))
			}
			slices.Sort(all)
			for i, chance := range quantileChances {
				scores[i] = max(scores[i], all[int(draws*(1-chance))])
			}
		}

		fmt.Fprintf(&text, "{%d, [...]float64{", n)
		for _, score := range scores {
			fmt.Fprintf(&text, "%.4g, ", score)
		}
		text.WriteString("}},\n")
	}

	source, err := format.Source([]byte(text.String() + "}\n"))
	if err == nil {
		err = os.WriteFile("quantiles.go", source, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
