package compare

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/google/pprof/profile"
)

// Bounds on profiles, which may be forged: bytes when unpacked, frames of all samples together, bytes of an expression.
const (
	largestProfile    = 256 << 20
	mostFrames        = 5_000_000
	longestExpression = 64 << 10
)

// ParseProfile reads a pprof profile, compressed by gzip or not, and takes out the frames that it names to be dropped. It is an
// error if it is damaged, is larger than 256 MiB unpacked, or has more than 5,000,000 frames in its stacks together.
func ParseProfile(r io.Reader) (*profile.Profile, error) {
	data, err := unpack(r)
	if err != nil {
		return nil, err
	}
	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}
	if err != nil {
		return nil, fmt.Errorf("it is no profile of pprof, or is damaged: %w", err)
	}
	if len(p.DropFrames)+len(p.KeepFrames) > longestExpression {
		return nil, fmt.Errorf("its drop_frames or keep_frames have more than %d bytes", longestExpression)
	}
	frames := 0
	for _, s := range p.Sample {
		frames++
		for _, l := range s.Location {
			frames += max(1, len(l.Line))
		}
		if frames > mostFrames {
			return nil, fmt.Errorf("its stacks have more than %d frames together", mostFrames)
		}
	}
	return p, p.RemoveUninteresting()
}

func unpack(r io.Reader) ([]byte, error) {
	data, err := readBounded(r)
	if err != nil || !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		data, err = readBounded(unpacked)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack it: %w", err)
	}
	return data, nil
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, largestProfile+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > largestProfile:
		return nil, fmt.Errorf("it has more than %d bytes", largestProfile)
	case len(data) == 0:
		return nil, errors.New("it is empty")
	}
	return data, nil
}
