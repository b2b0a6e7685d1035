package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
)

// deviceStacks are shown of each process: fewer than of the host's memory.
const deviceStacks = 5

// printDevices prints a section on the device memory of each process that has any.
func printDevices(out io.Writer, s *export.Summary) error {
	for _, d := range s.Devices {
		if err := printDevice(out, d); err != nil {
			return err
		}
	}
	return nil
}

func printDevice(out io.Writer, d export.Device) error {
	fmt.Fprintf(out, "\nDevice memory (PID %d):\n\n", d.Process)
	for _, line := range words.DeviceLines(d) {
		fmt.Fprintln(out, line)
	}
	if err := printDeviceLedger(out, d); err != nil {
		return err
	}
	if err := printCulprits(out, d.Culprits, "Who accumulates on the GPU, and where its stacks meet", "of the growth"); err != nil {
		return err
	}
	if len(d.Accumulating) == 0 {
		return nil
	}
	fmt.Fprint(out, "\nWhat holds more on the GPU than at the boundary:\n\n")
	return printAccumulating(out, d.Accumulating[:min(deviceStacks, len(d.Accumulating))])
}

// printDeviceLedger prints where device memory is, at the boundary and the end.
func printDeviceLedger(out io.Writer, d export.Device) error {
	sums, all := words.DeviceSums(d)
	if len(sums) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nWhere device memory is, since %s:\n\n", words.Seconds(d.BoundaryS))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "at the boundary\tat the end\tgrowth\t  what\n")
	row := func(s words.DeviceSum, what string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", words.Bytes(s.Start), words.Bytes(s.End), words.Signed(s.Delta()), what)
	}
	for _, s := range sums {
		row(s, s.What())
	}
	row(all, words.DeviceWhole(d))
	return w.Flush()
}
