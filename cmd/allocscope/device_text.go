package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// deviceStacks are shown of each process: fewer than of the host's memory.
const deviceStacks = 5

// printDevices prints a section on the device memory of each process that has any.
func printDevices(out io.Writer, s *summary.Summary) error {
	for _, d := range s.GPUMemory {
		if err := printDevice(out, d); err != nil {
			return err
		}
	}
	return nil
}

func printDevice(out io.Writer, d summary.GPUMemory) error {
	fmt.Fprintf(out, "\nDevice memory (PID %d):\n\n", d.Process)
	for _, line := range words.GPULines(d) {
		fmt.Fprintln(out, line)
	}
	if err := printDeviceLedger(out, d); err != nil {
		return err
	}
	if err := printCulprits(out, d.Suspects, "Who accumulates on the GPU, and where its stacks meet", "of the growth"); err != nil {
		return err
	}
	if len(d.Accumulating) == 0 {
		return nil
	}
	fmt.Fprint(out, "\nWhat holds more on the GPU than at the boundary:\n\n")
	return printAccumulating(out, d.Accumulating[:min(deviceStacks, len(d.Accumulating))])
}

// printDeviceLedger prints where device memory is, at the boundary and the end.
func printDeviceLedger(out io.Writer, d summary.GPUMemory) error {
	sums, all := words.GPUSums(d)
	if len(sums) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nWhere device memory is, since %s:\n\n", units.Seconds(d.BaselineS))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "at the boundary\tat the end\tgrowth\t  what\n")
	row := func(s words.GPUSum, what string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", units.Bytes(s.Start), units.Bytes(s.End), units.Signed(s.Delta()), what)
	}
	for _, s := range sums {
		row(s, s.Label())
	}
	row(all, words.GPUTotalLabel(d))
	return w.Flush()
}
