package report

import (
	"compress/gzip"
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
)

// Bounds of what is read.
const (
	mostRows       = 1_000_000 // of timeline.csv: eleven days at one a second
	largestProfile = 64 << 20  // bytes, when it is unpacked
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

func (t *Trace) readGrowth(r io.Reader) error {
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(unpacked, largestProfile+1))
	switch {
	case err != nil:
		return err
	case len(data) > largestProfile:
		return fmt.Errorf("it has more than %d bytes", largestProfile)
	}
	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}
	if err == nil {
		t.Growth = p
	}
	return err
}
