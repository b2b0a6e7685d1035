package bundle

import (
	"bufio"
	"encoding/csv"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/allocscope/allocscope/export/rows"
)

// maxTableBytes bounds the part of a table that is read: months of a trace.
const maxTableBytes = 128 << 20

var (
	numbersLine = regexp.MustCompile(`^[-0-9.,]*$`)
	headerLine  = regexp.MustCompile(`^time_s(,[a-z_]+)*$`)
)

// copyTable copies a table. Lines that are neither numbers nor the header are left out; it returns
// how many.
func copyTable(w io.Writer, r io.Reader) (leftOut int, err error) {
	lines := bufio.NewScanner(r)
	out := bufio.NewWriter(w)
	for isFirst := true; lines.Scan(); isFirst = false {
		line := lines.Text()
		if !numbersLine.MatchString(line) && (!isFirst || !isHeader(line)) {
			leftOut++
			continue
		}

		out.WriteString(line + "\n")
	}

	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return leftOut, err
	} else if err != nil {
		leftOut++
	}

	return leftOut, out.Flush()
}

// isHeader is true of a header of columns that allocscope writes.
func isHeader(line string) bool {
	if !headerLine.MatchString(line) {
		return false
	}

	for _, column := range strings.Split(line, ",") {
		if !rows.IsColumn(column) {
			return false
		}
	}

	return true
}

// copyObjects copies objects.csv, whose third column is a type, with other names of types.
func copyObjects(w io.Writer, r io.Reader, typeName func(string) string) (leftOut int, err error) {
	in, out := csv.NewReader(r), csv.NewWriter(w)
	in.FieldsPerRecord = -1
	for isFirst := true; ; isFirst = false {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}

		if _, isDamaged := errors.AsType[*csv.ParseError](err); isDamaged {
			leftOut++
			continue
		}
		if err != nil {
			return leftOut, err
		}

		isHeader := isFirst && isHeader(strings.Join(record, ","))
		if !isHeader {
			if len(record) != objectColumns || !numbersLine.MatchString(numbersOf(record)) {
				leftOut++
				continue
			}

			record[typeColumn] = typeName(record[typeColumn])
		}

		if err := out.Write(record); err != nil {
			return leftOut, err
		}
	}

	out.Flush()
	return leftOut, out.Error()
}

const (
	objectColumns = 6
	typeColumn    = 2
)

// numbersOf are the other columns.
func numbersOf(record []string) string {
	return strings.Join(record[:typeColumn], ",") + "," + strings.Join(record[typeColumn+1:], ",")
}
