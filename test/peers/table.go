package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/allocscope/allocscope/test/harness"
)

const mib = 1 << 20

// tables returns the results as Markdown: for each workload the cost and the report of each way,
// and the rates that allocscope reports.
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
		text.WriteString("| with | CPU time of a step, times native | by the clock " +
			"| MiB added: target, tool, kernel | cores for the tool | the injected leak |\n" +
			"|---|---|---|---|---|---|\n")
		fmt.Fprintf(&text, "| nothing, compared with its neighbours | %s | | | | |\n",
			spreadOf(native))
		for _, r := range results[i] {
			text.WriteString(r.row() + "\n")
		}
	}

	if rates.Len() > 0 {
		text.WriteString("\n| allocscope | injected, MB/s | reported (95% CI) | off by | verdict " +
			"| the cache is called a leak |\n|---|---|---|---|---|---|\n")
		text.WriteString(rates.String())
	}
	return text.String()
}

// paceOf describes the native steps: the CPU time of one, and how fast they leak.
func paceOf(native []stretch) string {
	var cpu []float64
	var leaked, seconds float64
	for _, s := range native {
		cpu = append(cpu, cpuOfStep(s)*1000)
		leaked, seconds = leaked+float64(s.leaked), seconds+s.seconds
	}

	return fmt.Sprintf("%.2f ms of CPU time a step, %.2f MB/s injected",
		spreadOf(cpu).median, leaked/seconds/1e6)
}

func (r result) row() string {
	if r.err != nil {
		return fmt.Sprintf("| %s | none: %s | | | | |", r.way.label, cellText(r.err.Error()))
	}

	cpu := spreadOf(paired(r.native, r.traced, cpuOfStep))
	clock := spreadOf(paired(r.native, r.traced, wallOfStep)).median
	return fmt.Sprintf("| %s | %s | %.2f | %+.0f, %.0f, %.0f | %.3f | %s |",
		r.way.label, cpu, clock,
		r.added()/mib, float64(r.load.RSS)/mib, float64(r.load.Kernel)/mib, r.load.Cores,
		cellText(r.finding()))
}

// finding describes whether the report names the leak.
func (r result) finding() string {
	if r.unread != nil {
		return "no report: " + r.unread.Error()
	}
	if len(r.report.entries) == 0 {
		return "nothing named"
	}

	first := r.report.entries[0]
	shown, firstPercent := first.shown(r.leak), first.share*100
	position, share := r.report.named(r.leak)
	switch position {
	case 0:
		return fmt.Sprintf("not named; first, with %.0f%%: %s", firstPercent, shown)
	case 1:
		return fmt.Sprintf("**named first**, %.0f%%: %s", share*100, shown)
	}
	return fmt.Sprintf("named as number %d, %.0f%%; first, with %.0f%%: %s",
		position, share*100, firstPercent, shown)
}

// rates compares the rate of the leak that allocscope reports with the program's own count.
func (r result) rates() string {
	if r.err != nil || r.unread != nil || !r.report.rates {
		return ""
	}

	megabytesPerSecond := func(bytesPerMinute float64) float64 { return bytesPerMinute / 60 / 1e6 }
	injected := float64(r.last.leaked) / r.last.seconds / 1e6
	reported := megabytesPerSecond(r.report.rate)

	off, cache := "", "no"
	switch {
	case injected == 0: // how fast its leak is, is not known
	case reported == 0:
		off = "not named"
	default:
		off = fmt.Sprintf("%+.0f%%", math.Round((reported/injected-1)*100))
	}
	if r.report.cache {
		cache = "**yes**"
	}

	low, top := megabytesPerSecond(r.report.low), megabytesPerSecond(r.report.top)
	return fmt.Sprintf("| %s, %s | %.2f | %.2f (%.2f-%.2f) | %s | %s | %s |\n",
		r.workload.name, r.way.name, injected, reported, low, top, off, r.report.verdict, cache)
}

// slowed returns for each traced stretch by how much a step takes longer, times native: the CPU time
// that a step takes more, as a share of a native step by the clock. Other programs do not count.
func (r result) slowed() (ratios []float64) {
	for i, s := range r.traced {
		before, after := r.native[i], r.native[i+1]
		added := cpuOfStep(s) - (cpuOfStep(before)+cpuOfStep(after))/2
		ratios = append(ratios, 1+added/((wallOfStep(before)+wallOfStep(after))/2))
	}
	return ratios
}

// exceeds is an error where steps are slowed to more than bound times native, and by more than
// the CPU time of native stretches differs. A bound of 0 is none.
func (r result) exceeds(bound float64) error {
	if bound == 0 || r.err != nil {
		return r.err
	}

	median := spreadOf(r.slowed()).median
	if unrest := spreadOf(noise(r.native, cpuOfStep)); !math.IsNaN(unrest.median) {
		bound += unrest.high - unrest.low
	}
	if median > bound {
		return fmt.Errorf("%s, %s: a step takes %.3f times the native time, more than %.3f",
			r.workload.name, r.way.name, median, bound)
	}
	return nil
}

// cellText escapes a text for a cell of a Markdown table.
func cellText(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text)
}

// A spread has the median of some numbers and their quartiles.
type spread struct{ low, median, high float64 }

func spreadOf(numbers []float64) spread {
	of := func(q float64) float64 { return harness.Quantile(numbers, q) }
	return spread{of(0.25), of(0.5), of(0.75)}
}

// String is empty where nothing was measured.
func (s spread) String() string {
	if math.IsNaN(s.median) {
		return ""
	}
	return fmt.Sprintf("%.3f (%.3f-%.3f)", s.median, s.low, s.high)
}

// paired returns the ratio of each traced stretch to the mean of the native ones before and after.
// There is one more native stretch than traced ones.
func paired(native, traced []stretch, of func(stretch) float64) []float64 {
	ratios := make([]float64, len(traced))
	for i := range traced {
		ratios[i] = of(traced[i]) / ((of(native[i]) + of(native[i+1])) / 2)
	}
	return ratios
}

// noise returns the ratio of each native stretch to the mean of the native ones before and after:
// the result of paired if there were no tool.
func noise(native []stretch, of func(stretch) float64) []float64 {
	var ratios []float64
	for i := 1; i < len(native)-1; i++ {
		ratios = append(ratios, of(native[i])/((of(native[i-1])+of(native[i+1]))/2))
	}
	return ratios
}
