package export

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/google/pprof/profile"
)

// Bounds on profiles, which may be forged. A trace of 2,000 stacks of 128 frames has 4 MB and 300,000 parts.
const (
	largestProfile = 32 << 20  // bytes, when it is unpacked
	mostParts      = 1_500_000 // before it is parsed: each takes some hundred bytes then
	mostFrames     = 2_000_000 // of all its stacks together, with the functions that were compiled into others
)

// ReadProfile reads a profile in pprof's form, compressed with gzip or not. It is an error if it is damaged, or larger than the
// bounds above: parsing it takes no more than a second and 300 MB.
func ReadProfile(r io.Reader) (*profile.Profile, error) {
	data, err := unpacked(r)
	if err != nil {
		return nil, err
	}
	if partsOf(data) > mostParts {
		return nil, fmt.Errorf("it has more than %d parts", mostParts)
	}
	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}
	if err != nil {
		return nil, fmt.Errorf("it is no profile of pprof, or is damaged: %w", err)
	}
	frames := 0
	for _, s := range p.Sample {
		for _, l := range s.Location {
			frames += max(1, len(l.Line))
		}
		if frames > mostFrames {
			return nil, fmt.Errorf("its stacks have more than %d frames together", mostFrames)
		}
	}
	return p, nil
}

// unpacked is what a file holds that may be compressed.
func unpacked(r io.Reader) ([]byte, error) {
	data, err := readBounded(r)
	if err != nil || !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, err
	}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		data, err = readBounded(zipped)
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

// Fields of the messages of a profile, by their numbers in pprof's profile.proto, that hold many parts.
const (
	fieldSample, fieldLocation, fieldComment = 2, 4, 13
	fieldSampleLocation, fieldSampleValue    = 1, 2
)

// partsOf counts what a profile consists of: messages, texts, and numbers in lists. It ends where the profile is damaged, as the
// parser does.
func partsOf(data []byte) (parts int) {
	eachField(data, func(field uint64, content []byte) {
		parts++
		switch field {
		case fieldComment:
			parts += numbersIn(content)
		case fieldLocation:
			eachField(content, func(uint64, []byte) { parts++ })
		case fieldSample:
			eachField(content, func(field uint64, content []byte) {
				parts++
				if field == fieldSampleLocation || field == fieldSampleValue {
					parts += numbersIn(content)
				}
			})
		}
	})
	return parts
}

// numbersIn is how many variable-length numbers a packed list holds: the last byte of each has no high bit.
func numbersIn(list []byte) (n int) {
	for _, b := range list {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// eachField gives the fields of a protobuf message: its number, and the bytes of what has a length.
func eachField(message []byte, do func(field uint64, content []byte)) {
	for ok := true; ok; {
		var key, size uint64
		if key, message, ok = varint(message); !ok {
			return
		}
		var content []byte
		switch key & 7 {
		case 0:
			_, message, ok = varint(message)
		case 1:
			size = 8
		case 2:
			size, message, ok = varint(message)
		case 5:
			size = 4
		default:
			return
		}
		if !ok || size > uint64(len(message)) {
			return
		}
		if content, message = message[:size], message[size:]; key&7 != 2 {
			content = nil
		}
		do(key>>3, content)
	}
}

// varint reads a variable-length number as pprof's parser does, which takes more than 64 bits. ok: there is one.
func varint(data []byte) (x uint64, rest []byte, ok bool) {
	for i := 0; i < min(len(data), binary.MaxVarintLen64); i++ {
		if x |= uint64(data[i]&0x7f) << (7 * i); data[i] < 0x80 {
			return x, data[i+1:], true
		}
	}
	return 0, nil, false
}
