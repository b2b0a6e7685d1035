package live

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// A Device is the memory of the process on its GPUs together. Sizes are in bytes, and negative where they are not known.
type Device struct {
	// Used is what the driver counts; Reserved and Allocated are what torch's allocator has from the driver and has handed out; Called is
	// what was allocated through the driver's API since the attach.
	Used, Reserved, Allocated, Called int64
	// Total of the GPUs that the process may be on, and Room that the one with least has left.
	Total, Room int64
	// Trail is the course so far of the first of Used, Reserved, Called and Allocated that is known.
	Trail Trail

	// Verdict at State.JudgedAt, which is provisional; nil: there was no look yet.
	Verdict *summary.Verdict
	// Diagnosis says in a sentence what the verdict means, and Blame whose code most of the growth is; empty where that is not known.
	Diagnosis, Blame string
	// Stacks that grew or hold most on GPUs, in any order.
	Stacks []Stack
}

// A measure is a size with what it counts.
type measure struct {
	what string
	size int64
}

// The measures, the one that says most first.
const (
	used = iota
	reserved
	called
	allocated
)

func (d *Device) measures() []measure {
	return []measure{used: {"used", d.Used}, reserved: {"reserved", d.Reserved}, called: {"through the driver's API", d.Called}, allocated: {"allocated", d.Allocated}}
}

// main is the index of the measure that the chart shows: the first that is known; -1: none is.
func (d *Device) main() int {
	return slices.IndexFunc(d.measures(), func(m measure) bool { return m.size >= 0 })
}

// stacks are those that the user wants to see: of the host, or of GPUs.
func (s *State) stacks(look Look) []Stack {
	if s.showsDevice(look) {
		return s.Device.Stacks
	}
	return s.Stacks
}

func (s *State) showsDevice(look Look) bool { return look.Device && s.Device != nil }

// deviceSection is device memory so far: a title, the chart, and what else is known of it.
func deviceSection(s *State, height int) section {
	const usual, bare = 24, 2 // lines of a terminal, and of the section without the facts
	most, least := max(4, min(4+(height-usual)/6, 8)), bare
	if height >= usual {
		least++
	}
	return section{least, most, 3, 3, func(width, height int) []string {
		facts := deviceFacts(s.Device)
		if height <= bare || len(facts) == 0 {
			return deviceChart(s, width, height)
		}
		return append(deviceChart(s, width, height-1), fit(" "+wrapped(facts, width-1)[0], width))
	}}
}

func deviceChart(s *State, width, height int) []string {
	d := s.Device
	if d.main() < 0 {
		return chartOf("Device memory", "not known", d.Trail, s.Elapsed, width, height)
	}
	main := d.measures()[d.main()]
	now := main.what + " " + units.Bytes(float64(main.size))
	if d.Total >= 0 {
		now += " of " + units.Bytes(float64(d.Total))
	}
	return chartOf("Device memory", now, d.Trail, s.Elapsed, width, height)
}

// deviceFacts are what is known of device memory besides what the chart shows, in short.
func deviceFacts(d *Device) []string {
	measures, main := d.measures(), d.main()
	var parts []string
	for _, m := range []measure{measures[reserved], measures[allocated], {"room", d.Room}, measures[called]} {
		if m.size >= 0 && (main < 0 || m != measures[main]) {
			parts = append(parts, m.what+" "+units.Bytes(float64(m.size)))
		}
	}
	return parts
}

// deviceVerdict is what is judged so far of device memory; none before the first look.
func deviceVerdict(d *Device, width int) []string {
	if d == nil || d.Verdict == nil {
		return nil
	}
	said := words.VerdictLines(*d.Verdict, words.AtGPULimit)
	lines := broken("Device so far: "+boldIn(colorOf(d.Verdict.Class), safe(said[0])), width)
	rest := said[1:]
	if d.Blame != "" {
		rest = append([]string{"most by " + safe(d.Blame)}, rest...)
	}
	lines = append(lines, wrapped(rest, width)...)
	if d.Diagnosis != "" {
		lines = append(lines, broken(safe(d.Diagnosis), width)...)
	}
	return lines
}

// broken is a text in as many lines as it takes.
func broken(text string, width int) []string {
	return strings.Split(ansi.Wordwrap(text, width, ""), "\n")
}

// shared is as many lines of two as there is room for: neither pushes the other out, and what the one does not need the other has.
func shared(first, second []string, height int) []string {
	half := height / 2
	of := min(len(first), max(height-len(second), height-half))
	return append(first[:of:of], second[:min(len(second), height-of)]...)
}
