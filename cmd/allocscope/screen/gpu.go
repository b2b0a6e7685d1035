package screen

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/export/chart"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// GPU is the memory of the process on all of its GPUs. Sizes are in bytes, and negative where they
// are unknown.
type GPU struct {
	// Used is the count of NVML. Reserved and Allocated are from PyTorch's caching allocator:
	// memory from the driver, and memory in blocks. DriverAPI was allocated through the CUDA driver
	// API since tracing started.
	Used, Reserved, Allocated, DriverAPI int64
	// Total of the GPUs that the process may use, and Headroom of the GPU with the least.
	Total, Headroom int64
	// Curve of the first known one of Used, Reserved, DriverAPI and Allocated.
	Curve chart.Curve

	// Verdict at State.JudgedAt, which is provisional; nil: there is none yet.
	Verdict *summary.Verdict
	// Diagnosis is the meaning of the verdict in a sentence, and Suspect the code with most of the
	// growth; empty: unknown.
	Diagnosis, Suspect string
	// Stacks that grew most or are largest on GPUs, in any order.
	Stacks []Stack
}

// measure is a size with its name.
type measure struct {
	what string
	size int64
}

// The measures, the most complete one first.
const (
	used = iota
	reserved
	driverAPI
	allocated
)

func (g *GPU) measures() []measure {
	return []measure{
		used: {"used", g.Used}, reserved: {"reserved", g.Reserved},
		driverAPI: {"CUDA driver API", g.DriverAPI}, allocated: {"allocated", g.Allocated},
	}
}

// main is the index of the measure of the chart: the first known one; -1: all are unknown.
func (g *GPU) main() int {
	return slices.IndexFunc(g.measures(), func(m measure) bool { return m.size >= 0 })
}

// stacks returns the stacks that the user has chosen: of the host, or of GPUs.
func (s *State) stacks(ui UIState) []Stack {
	if s.showsGPU(ui) {
		return s.GPU.Stacks
	}
	return s.Stacks
}

func (s *State) showsGPU(ui UIState) bool { return ui.ShowGPU && s.GPU != nil }

// gpuSection is the GPU memory so far: a title, the chart, and the other measures.
func gpuSection(s *State, height int) section {
	const usualHeight, withoutFacts = 24, 2 // lines of a terminal, and of the section
	lines := section{
		min:      withoutFacts,
		max:      max(4, min(4+(height-usualHeight)/6, 8)),
		rank:     3,
		growRank: 3,
	}
	if height >= usualHeight {
		lines.min++
	}

	lines.draw = func(width, height int) []string {
		facts := gpuFacts(s.GPU)
		if height <= withoutFacts || len(facts) == 0 {
			return gpuChart(s, width, height)
		}
		return append(gpuChart(s, width, height-1), fit(" "+joinParts(facts, width-1)[0], width))
	}
	return lines
}

func gpuChart(s *State, width, height int) []string {
	g := s.GPU
	if g.main() < 0 {
		return chartOf("GPU memory", "unknown", g.Curve, s.Elapsed, width, height)
	}

	main := g.measures()[g.main()]
	now := main.what + " " + units.Bytes(float64(main.size))
	if g.Total >= 0 {
		now += " of " + units.Bytes(float64(g.Total))
	}
	return chartOf("GPU memory", now, g.Curve, s.Elapsed, width, height)
}

// gpuFacts are the known measures besides the one in the chart.
func gpuFacts(g *GPU) []string {
	measures, main := g.measures(), g.main()
	var parts []string
	headroom := measure{"headroom", g.Headroom}
	others := []measure{measures[reserved], measures[allocated], headroom, measures[driverAPI]}

	for _, m := range others {
		if m.size >= 0 && (main < 0 || m != measures[main]) {
			parts = append(parts, m.what+" "+units.Bytes(float64(m.size)))
		}
	}
	return parts
}

// gpuVerdictLines is the verdict so far; none before the first one.
func gpuVerdictLines(g *GPU, width int) []string {
	if g == nil || g.Verdict == nil {
		return nil
	}

	verdict := safeLines(words.VerdictLines(*g.Verdict, words.AtGPULimit))
	lines := wrapText("GPU so far: "+boldIn(console.ColorOf(g.Verdict.Class), verdict[0]), width)
	rest := verdict[1:]
	if g.Suspect != "" {
		rest = append([]string{safe(g.Suspect)}, rest...)
	}

	lines = append(lines, joinParts(rest, width)...)
	if g.Diagnosis != "" {
		lines = append(lines, wrapText(safe(g.Diagnosis), width)...)
	}

	return lines
}

// wrapText splits a text into as many lines as it needs.
func wrapText(text string, width int) []string {
	return strings.Split(ansi.Wordwrap(text, width, ""), "\n")
}

// shareLines returns as many lines of two texts as there is room for. Each text has half of them,
// and those that the other one does not need.
func shareLines(first, second []string, height int) []string {
	half := height / 2
	n := min(len(first), max(height-len(second), height-half))
	return append(first[:n:n], second[:min(len(second), height-n)]...)
}
