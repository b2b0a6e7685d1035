package view

import (
	"errors"
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
)

// readProfile reads a profile of the folder.
func readProfile(folder *export.Folder, name string) (p *profile.Profile, err error) {
	err = folder.ReadFile(name, func(r io.Reader) error {
		p, err = export.ReadProfile(r)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(p.SampleType) == 0:
		return nil, fmt.Errorf("read %s: %w", name, errors.New("it is no profile: it has no sample types"))
	}
	disarm(p)
	return p, nil
}
