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

// Bounds on profiles, which may be forged. A trace of 2,000 stacks of 128 frames has 4 MB and 300,000 parts.
const (
	maxProfileBytes = 32 << 20  // bytes, when it is unpacked
	maxProfileParts = 1_500_000 // before it is parsed: each takes some hundred bytes then
	maxStackFrames  = 2_000_000 // of all its stacks together, with the functions that were compiled into others
)

// ReadProfile reads a profile in pprof's form, compressed with gzip or not. It is an error if it is damaged, or larger than the
// bounds above: parsing it takes no more than a second and 300 MB.
func Read(r io.Reader) (*profile.Profile, error) {
	data, err := unpacked(r)
	if err != nil {
		return nil, err
	}
	if countParts(data) > maxProfileParts {
		return nil, fmt.Errorf("it has more than %d parts", maxProfileParts)
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
		if frames > maxStackFrames {
			return nil, fmt.Errorf("its stacks have more than %d frames together", maxStackFrames)
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
	data, err := io.ReadAll(io.LimitReader(r, maxProfileBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxProfileBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxProfileBytes)
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

// numbersIn is how many variable-length numbers a packed list holds: the last byte of each has no high bit.
func countVarints(list []byte) (n int) {
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

// mostCompared bounds the work of dropping frames, which is bytes of names times instructions of expressions: a second of it.
const maxDropWork = 1 << 33

// DropFrames takes out the frames that a profile wants left out, as pprof does. It is an error if its expressions are not well
// formed, or are too long for so many names.
func DropFrames(p *profile.Profile) error {
	var names, instructions int
	for _, f := range p.Function {
		names += len(f.Name)
	}
	for _, expression := range []string{p.DropFrames, p.KeepFrames} {
		n, err := instructionsOf(expression)
		if err != nil {
			return fmt.Errorf("read its drop_frames or keep_frames: %w", err)
		}
		instructions += n
	}
	if instructions > maxDropWork/max(names, 1) {
		return fmt.Errorf("its drop_frames or keep_frames are too long for %d bytes of names", names)
	}
	return p.RemoveUninteresting()
}

// instructionsOf is how long an expression is once its repetitions are written out.
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
