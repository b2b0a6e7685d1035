package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

const mib = 1 << 20

// tables prints what has been measured: for each workload what each way has cost and said, and for allocscope the rates.
func (b *bench) tables(chosen []workload, results [][]result) string {
	var text, rates strings.Builder
	for i, w := range chosen {
		var native []float64
		var idle []stretch
		for _, r := range results[i] {
			native = append(native, noise(r.native, cpuOfStep)...)
			idle = append(idle, r.native...)
			rates.WriteString(r.rates())
		}
		fmt.Fprintf(&text, "\n`%s`: %s, %s\n\n", w.name, w.about, paceOf(idle))
		text.WriteString("| with | CPU time of a step, times native | by the clock | MiB added: target, tool, kernel | cores for the tool | the planted leak |\n")
		text.WriteString("|---|---|---|---|---|---|\n")
		fmt.Fprintf(&text, "| nothing, compared with its neighbours | %s | | | | |\n", spreadOf(native))
		for _, r := range results[i] {
			text.WriteString(r.row() + "\n")
		}
	}
	if rates.Len() > 0 {
		text.WriteString("\n| allocscope | planted, MB/s | told (its limits) | off by | verdict | the cache is called a leak |\n|---|---|---|---|---|---|\n")
		text.WriteString(rates.String())
	}
	return text.String()
}

// paceOf tells how long a native step takes, and what it plants in a second.
func paceOf(native []stretch) string {
	var cpu []float64
	var planted, seconds float64
	for _, s := range native {
		cpu = append(cpu, cpuOfStep(s)*1000)
		planted, seconds = planted+float64(s.planted), seconds+s.seconds
	}
	return fmt.Sprintf("%.2f ms of CPU time a step, %.2f MB/s planted", spreadOf(cpu).median, planted/seconds/1e6)
}

func (r result) row() string {
	if r.err != nil {
		return fmt.Sprintf("| %s | none: %s | | | | |", r.way.label, cellText(r.err.Error()))
	}
	clock := spreadOf(paired(r.native, r.traced, wallOfStep)).median
	return fmt.Sprintf("| %s | %s | %.2f | %+.0f, %.0f, %.0f | %.3f | %s |", r.way.label, spreadOf(paired(r.native, r.traced, cpuOfStep)), clock,
		r.added()/mib, float64(r.load.rss)/mib, float64(r.load.kernel)/mib, r.load.cores, cellText(r.said()))
}

// said tells whether the planted line is in the report.
func (r result) said() string {
	if r.unread != nil {
		return "no report: " + r.unread.Error()
	}
	if len(r.report.entries) == 0 {
		return "nothing named"
	}
	first := r.report.entries[0]
	at, share := r.report.named(r.leak)
	switch at {
	case 0:
		return fmt.Sprintf("not named; first, with %.0f %%: %s", first.share*100, first.shown(r.leak))
	case 1:
		return fmt.Sprintf("**named first**, %.0f %%: %s", share*100, first.shown(r.leak))
	}
	return fmt.Sprintf("named as number %d, %.0f %%; first, with %.0f %%: %s", at, share*100, first.share*100, first.shown(r.leak))
}

// rates compares what allocscope says of the planted line with what the program has counted itself.
func (r result) rates() string {
	if r.err != nil || r.unread != nil || !r.report.rates {
		return ""
	}
	perMinute := func(bytes float64) float64 { return bytes / 60 / 1e6 }
	planted, told := float64(r.last.planted)/r.last.seconds/1e6, perMinute(r.report.rate)
	off, cache := "not named", "no"
	if told > 0 {
		off = fmt.Sprintf("%+.0f %%", math.Round((told/planted-1)*100))
	}
	if r.report.cache {
		cache = "**yes**"
	}
	return fmt.Sprintf("| %s, %s | %.2f | %.2f (%.2f-%.2f) | %s | %s | %s |\n", r.workload.name, r.way.name, planted,
		told, perMinute(r.report.low), perMinute(r.report.top), off, r.report.verdict, cache)
}

// cellText keeps a text within its cell.
func cellText(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text)
}

// A spread is the median of some numbers and their quartiles.
type spread struct{ low, median, high float64 }

func spreadOf(numbers []float64) spread {
	sorted := slices.Sorted(slices.Values(numbers))
	return spread{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)}
}

// quantile lies between the two numbers next to it; NaN where there is none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (sorted[above]-sorted[below])*(at-float64(below))
}

// String is empty where nothing was measured.
func (s spread) String() string {
	if math.IsNaN(s.median) {
		return ""
	}
	return fmt.Sprintf("%.3f (%.3f-%.3f)", s.median, s.low, s.high)
}

// paired compares each traced stretch with the mean of the native ones before and after it, of which there is one more.
func paired(native, traced []stretch, of func(stretch) float64) []float64 {
	ratios := make([]float64, len(traced))
	for i := range traced {
		ratios[i] = of(traced[i]) / ((of(native[i]) + of(native[i+1])) / 2)
	}
	return ratios
}

// noise compares each native stretch with the mean of the native ones before and after it: what paired says of no tool at all.
func noise(native []stretch, of func(stretch) float64) []float64 {
	var ratios []float64
	for i := 1; i < len(native)-1; i++ {
		ratios = append(ratios, of(native[i])/((of(native[i-1])+of(native[i+1]))/2))
	}
	return ratios
}
