package view

import (
	"errors"
	"fmt"
	"io"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
)

// readProfile reads a profile of the folder.
func readProfile(dir *folder.Folder, name string) (p *pprof.Profile, err error) {
	err = dir.ReadFile(name, func(r io.Reader) error {
		p, err = profile.Read(r)
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
