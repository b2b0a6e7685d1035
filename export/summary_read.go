package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// largestSummary bounds what is read of a summary, in bytes.
const largestSummary = 32 << 20

// ReadSummary reads what Summary.Write wrote. Another schema, more than 32 MiB, and anything that follows are errors; fields that
// it does not know are passed over.
func ReadSummary(r io.Reader) (*Summary, error) {
	bounded := &io.LimitedReader{R: r, N: largestSummary + 1}
	decoder := json.NewDecoder(bounded)
	var s Summary
	err := decoder.Decode(&s)
	if err == nil {
		err = endOf(decoder)
	}
	switch {
	case bounded.N == 0:
		return nil, fmt.Errorf("it has more than %d bytes", largestSummary)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it is cut short")
	case err != nil:
		return nil, err
	case s.Schema != SummarySchema:
		return nil, fmt.Errorf("its schema is %q, not %q", s.Schema, SummarySchema)
	}
	return &s, nil
}

// endOf wants nothing but white space to follow.
func endOf(decoder *json.Decoder) error {
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}
