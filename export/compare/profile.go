package compare

import (
	"io"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
)

// ParseProfile reads a profile as export.ReadProfile does, and takes out the frames that it names to be dropped.
func ParseProfile(r io.Reader) (*profile.Profile, error) {
	p, err := export.ReadProfile(r)
	if err != nil {
		return nil, err
	}
	return p, export.DropFrames(p)
}
