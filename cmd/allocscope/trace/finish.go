package trace

import (
	"fmt"
	"io"
	"os"

	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/record"
)

// finish writes the summary and the report of a trace, and prints the result.
func (o *Options) finish(r *record.Result, files *record.Files, env Environment) error {
	s, place := r.Summary, PlaceOf(files.Path())
	o.save(s, files)
	files.Write(folder.ReportFile, env.WriteReport(files.Folder))

	err := o.print(s, place, env.Out)
	if err == nil {
		err = files.Err()
	}
	return err
}

// save writes the summary of a trace, which may go on.
func (o *Options) save(s *summary.Summary, files *record.Files) {
	s.Text = words.ResultOf(s, PlaceOf(files.Path())).Text()
	files.Write(folder.SummaryFile, s.Write)
}

// print prints the result as the user wants it.
func (o *Options) print(s *summary.Summary, place words.Place, out io.Writer) error {
	if o.JSON {
		return s.Write(out)
	}

	if !o.Quiet {
		fmt.Fprintln(out)
	}
	return PrintResult(out, s, place, Print{o.Quiet, o.Details, o.Color})
}

// PlaceOf is where the commands of a result are typed: in this shell, about a folder.
func PlaceOf(dir string) words.Place {
	return words.Place{Dir: dir, Sudo: os.Geteuid() != 0 || os.Getenv("SUDO_UID") != ""}
}

// outcomesOf returns the verdicts of a trace, on RSS and on GPU memory.
func outcomesOf(r *conclude.Result) []flagvalue.Outcome {
	all := []flagvalue.Outcome{{What: "the verdict", Class: r.Main.Class}}
	for _, p := range r.All {
		if p.GPU != nil {
			all = append(all, flagvalue.Outcome{
				What: "the verdict on the " + words.GPUMemoryOf(p.History.PID), Class: p.GPU.Class,
			})
		}
	}
	return all
}
