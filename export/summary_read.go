package export

import (
	"encoding/json"
	"fmt"
	"io"
)

// ReadSummary reads what Summary.Write wrote. Another schema is an error; fields that it does not know are passed over.
func ReadSummary(r io.Reader) (*Summary, error) {
	var s Summary
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return nil, err
	}
	if s.Schema != SummarySchema {
		return nil, fmt.Errorf("its schema is %q, not %q", s.Schema, SummarySchema)
	}
	return &s, nil
}
