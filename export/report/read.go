package report

import (
	"fmt"
	"io"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// Bounds of what is read, in rows.
const (
	mostRows   = 500_000   // of timeline.csv: five days at one a second
	mostOfTree = 5_000_000 // of processes.csv
)

// Read reads the files of a folder. Only a summary.json that cannot be read is an error; what else is missing is named, and of a
// timeline.csv that is damaged all is taken that comes before the damage.
func Read(folder *export.Folder) (*Trace, error) {
	var t Trace
	err := folder.ReadFile(export.SummaryFile, func(r io.Reader) error {
		summary, err := export.ReadSummary(r)
		if err == nil {
			t.Summary = *summary
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	t.note(folder.ReadFile(export.TimelineFile, t.readRows))
	if severalTraced(&t.Summary) {
		t.note(t.readOwn(folder))
	}
	t.note(folder.ReadFile(export.GrowthFile, t.readGrowth))
	return &t, nil
}

// note keeps what could not be read for the reader of the report.
func (t *Trace) note(err error) {
	if err != nil {
		t.Missing = append(t.Missing, fmt.Sprintf("Not all could be read: %s.", err))
	}
}

func (t *Trace) readRows(r io.Reader) (err error) {
	bounded := &firstLines{r: r, left: mostRows + 1} // with the header
	t.Rows, err = export.ReadTimeline(bounded)
	if err != nil && len(t.Rows) > 0 {
		return fmt.Errorf("%w (what comes before is shown)", err)
	}
	if err == nil && bounded.left == 0 {
		err = fmt.Errorf("only the first %d rows are taken", mostRows)
	}
	return err
}

// readOwn takes the samples of the process that the verdict is about from processes.csv: those of timeline.csv are sums where several
// processes are traced. Where it has none they are unknown.
func (t *Trace) readOwn(folder *export.Folder) error {
	pid := int64(t.Summary.Process.PID)
	var own []growth.ProcessSample
	err := folder.ReadFile(export.ProcessesFile, func(r io.Reader) (err error) {
		own, err = export.ReadProcesses(&firstLines{r: r, left: mostOfTree + 1}, func(p *growth.ProcessSample) bool { return p.PID == pid })
		return err
	})
	for i := range t.Rows {
		at := t.Rows[i].Elapsed
		for len(own) > 0 && own[0].Elapsed < at {
			own = own[1:]
		}
		sample := growth.UnknownSample()
		if len(own) > 0 && own[0].Elapsed == at {
			sample = own[0].Sample
		}
		sample.Elapsed = at
		t.Rows[i].Sample = sample
	}
	return err
}

func severalTraced(s *export.Summary) bool {
	traced := 0
	for _, p := range s.Processes {
		if p.Traced {
			traced++
		}
	}
	return traced > 1
}

// firstLines reads so many lines, and then the end of the file.
type firstLines struct {
	r    io.Reader
	left int
}

// Read reads what is left of these lines.
func (f *firstLines) Read(buf []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.r.Read(buf)
	for i, c := range buf[:n] {
		if c != '\n' {
			continue
		}
		if f.left--; f.left == 0 {
			return i + 1, nil
		}
	}
	return n, err
}

func (t *Trace) readGrowth(r io.Reader) (err error) {
	t.Growth, err = export.ReadProfile(r)
	return err
}
