package trace

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// printObjects prints the types of objects that grow, the tensors, and who keeps what.
func printObjects(out io.Writer, s *summary.Summary) error {
	if o := s.Objects; o != nil {
		if err := printGrownTypes(out, o); err != nil {
			return err
		}
		if err := printTensors(out, s); err != nil {
			return err
		}
		for _, note := range words.ObjectsNotes(o) {
			fmt.Fprintf(out, "objects: %s\n", note)
		}
	}

	if len(s.Keepers) > 0 {
		fmt.Fprint(out, "\nWho keeps it:\n")
	}
	for _, k := range s.Keepers {
		fmt.Fprintf(out, "\n  %s\n", words.KeeperTitle(s, k))
		for _, line := range words.KeeperLines(k) {
			fmt.Fprintf(out, "    %s\n", line)
		}
	}
	return nil
}

func printGrownTypes(out io.Writer, o *summary.Objects) error {
	if len(o.Types) == 0 {
		return nil
	}

	fmt.Fprintf(out, "\nTypes of Python objects that grow (Python %s):\n\n", o.Python)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "growth\t95%\tat first\tat the end\tbytes\t  type\n")
	for _, t := range o.Types[:min(maxTableRows, len(o.Types))] {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t  %s\n", units.PerMinute(t.PerMin), words.TypeInterval(o, t),
			units.Thousands(t.Before), units.Thousands(t.After),
			units.Signed(float64(t.Bytes)), t.Type)
	}
	return w.Flush()
}

func printTensors(out io.Writer, s *summary.Summary) error {
	tensors := words.TensorRows(s.Objects)
	if len(tensors) == 0 {
		return nil
	}

	fmt.Fprint(out, "\nTensors at the end, each storage once:\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "storages\ttensors\tgrowth\tbytes\tgrowth\t  what\n")
	for _, row := range tensors[:min(maxTableRows, len(tensors))] {
		what := row.What
		if where := words.WhereStack(s, row.StackID); where != "" {
			what += ": " + where
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t  %s\n", row.Storages, row.Tensors, row.Gained,
			units.Bytes(float64(row.Bytes)), row.GrowthText(), what)
	}
	return w.Flush()
}
