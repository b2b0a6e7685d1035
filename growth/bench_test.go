package growth

import (
	"fmt"
	"iter"
	"strings"
	"testing"
)

// BenchmarkVerdicts compares one look at the end with what others do: how many percent of the histories without a leak are taken
// for one ("no"), and how many percent of the leaks of so many percent per minute are found, by the length of the watch.
func BenchmarkVerdicts(b *testing.B) {
	for b.Loop() {
		table := []string{"%", "ours"} // a line for each judge: what a benchmark logs is cut after ten
		for _, other := range baselines {
			table = append(table, other.name)
		}
		for _, watch := range watches {
			addColumn(table, column(watch, "no"), histories(20, decidable, []float64{watch}, noLeak, 8e6))
		}
		for _, watch := range watches[1:] {
			for _, rate := range []float64{0.01, 0.05, 0.1, 0.5, 2} {
				leaking := histories(10, thoseThatSettle(), []float64{watch}, []float64{rate}, 9e6)
				addColumn(table, column(watch, fmt.Sprint(rate)), leaking)
			}
		}
		b.Log(strings.Join(table, "\n"))
	}
}

func column(watch float64, what string) string {
	return fmt.Sprintf("%.0fmin:%s", watch/60, what)
}

// addColumn adds to the table what percentage of histories each judge takes for a leak.
func addColumn(table []string, name string, all iter.Seq2[family, history]) {
	taken, of := make([]int, 1+len(baselines)), 0
	for _, h := range all {
		of++
		taken[0] += one(h.judgedLeak())
		for i, other := range baselines {
			taken[1+i] += one(other.leaks(h.series))
		}
	}
	table[0] = fmt.Sprintf("%-9s %12s", table[0], name)
	for i, n := range taken {
		table[1+i] = fmt.Sprintf("%-9s %12.1f", table[1+i], 100*float64(n)/float64(of))
	}
}
