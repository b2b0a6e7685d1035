package profile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp/syntax"

	"github.com/google/pprof/profile"
)

// Bounds on profiles, which may be forged. The profile of a trace with 2,000 stacks of 128 frames
// has 4 MB and 300,000 parts.
const (
	maxProfileBytes = 32 << 20  // bytes, uncompressed
	maxProfileParts = 1_500_000 // each takes some hundred bytes once it is parsed
	maxStackFrames  = 2_000_000 // of all stacks together, with inlined functions
)

// Read reads a pprof profile, compressed with gzip or not. A damaged profile and one beyond the
// bounds above are errors. Parsing takes at most a second and 300 MB.
func Read(r io.Reader) (*profile.Profile, error) {
	data, err := unpacked(r)
	if err != nil {
		return nil, err
	}

	if countParts(data) > maxProfileParts {
		return nil, fmt.Errorf("more than %d parts", maxProfileParts)
	}

	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}

	if err != nil {
		return nil, fmt.Errorf("not a pprof profile, or damaged: %w", err)
	}

	frames := 0
	for _, s := range p.Sample {
		for _, l := range s.Location {
			frames += max(1, len(l.Line))
		}
		if frames > maxStackFrames {
			return nil, fmt.Errorf("more than %d frames in its stacks", maxStackFrames)
		}
	}

	return p, nil
}

// unpacked returns the content of a file that may be compressed with gzip.
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
		return nil, fmt.Errorf("decompress: %w", err)
	}

	return data, nil
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxProfileBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxProfileBytes:
		return nil, fmt.Errorf("larger than %d bytes", maxProfileBytes)
	case len(data) == 0:
		return nil, errors.New("the file is empty")
	}

	return data, nil
}

// Numbers of the fields of profile.proto that hold many parts.
const (
	fieldSample, fieldLocation, fieldComment = 2, 4, 13
	fieldSampleLocation, fieldSampleValue    = 1, 2
)

// countParts counts the parts of an encoded profile: messages, strings, and numbers in lists. It
// stops where the profile is damaged, as pprof's parser does.
func countParts(data []byte) (parts int) {
	eachField(data, func(field uint64, content []byte) {
		parts++
		switch field {
		case fieldComment:
			parts += countVarints(content)
		case fieldLocation:
			eachField(content, func(uint64, []byte) { parts++ })
		case fieldSample:
			eachField(content, func(field uint64, content []byte) {
				parts++
				if field == fieldSampleLocation || field == fieldSampleValue {
					parts += countVarints(content)
				}
			})
		}
	})

	return parts
}

// countVarints counts the numbers in a packed list. Only the last byte of each has no high bit.
func countVarints(list []byte) (n int) {
	for _, b := range list {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// eachField calls do for each field of a protobuf message, with its number, and its bytes if it has
// a length. See https://protobuf.dev/programming-guides/encoding/.
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

// varint reads a variable-length number as pprof's parser does, which accepts more than 64 bits. ok
// is false where there is none.
func varint(data []byte) (x uint64, rest []byte, ok bool) {
	for i := 0; i < min(len(data), binary.MaxVarintLen64); i++ {
		if x |= uint64(data[i]&0x7f) << (7 * i); data[i] < 0x80 {
			return x, data[i+1:], true
		}
	}
	return 0, nil, false
}

// maxDropWork bounds the work of dropping frames, in bytes of names times instructions of the
// expressions. It takes about a second.
const maxDropWork = 1 << 33

// DropFrames removes the frames that a profile wants left out, as pprof does. Malformed regular
// expressions, and expressions too long for the number of names, are errors.
func DropFrames(p *profile.Profile) error {
	var names, instructions int
	for _, f := range p.Function {
		names += len(f.Name)
	}

	for _, expression := range []string{p.DropFrames, p.KeepFrames} {
		n, err := instructionsOf(expression)
		if err != nil {
			return fmt.Errorf("read drop_frames or keep_frames: %w", err)
		}
		instructions += n
	}

	if instructions > maxDropWork/max(names, 1) {
		return fmt.Errorf("drop_frames or keep_frames too long for %d bytes of names", names)
	}

	return p.RemoveUninteresting()
}

// instructionsOf is the length of a compiled regular expression, with its repetitions expanded.
func instructionsOf(expression string) (int, error) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return 0, err
	}

	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}

	return len(program.Inst), nil
}
