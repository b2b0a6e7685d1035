package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds on a summary, which may be forged: the largest real ones have some 4 MB and 20,000 objects.
const (
	largestSummary = 32 << 20 // bytes
	mostObjects    = 200_000  // each takes some hundred bytes in memory, however short it is
)

// ReadSummary reads what Summary.Write wrote. Another schema, more than 32 MiB or 200,000 objects, and anything that follows are
// errors; fields that it does not know are passed over.
func ReadSummary(r io.Reader) (*Summary, error) {
	data, err := io.ReadAll(io.LimitReader(r, largestSummary+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > largestSummary:
		return nil, fmt.Errorf("it has more than %d bytes", largestSummary)
	case bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("null")) > mostObjects:
		return nil, fmt.Errorf("it has more than %d objects", mostObjects)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	var s Summary
	if err = decoder.Decode(&s); err == nil {
		err = endOf(decoder)
	}
	switch {
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
