package view

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
)

// largestProfile bounds a profile that is unpacked, in bytes. In memory it takes some ten times as much.
const largestProfile = 128 << 20

// readProfile reads a profile of the folder.
func readProfile(folder *export.Folder, name string) (*profile.Profile, error) {
	var p *profile.Profile
	err := folder.ReadFile(name, func(r io.Reader) error {
		unpacked, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(unpacked, largestProfile+1))
		switch {
		case err != nil:
			return err
		case len(data) > largestProfile:
			return fmt.Errorf("it unpacks to more than %d bytes", largestProfile)
		}
		p, err = profile.ParseUncompressed(data)
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
