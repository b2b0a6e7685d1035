package profile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// zipped is a file of one message.
func zipped(t testing.TB, message []byte) *bytes.Reader {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(message); err != nil {
		t.Fatal(err)
	}
	tracertest.NoError(t, w.Close())
	return bytes.NewReader(out.Bytes())
}

// message is a protobuf field that has a length.
func message(field uint64, parts ...[]byte) []byte {
	content := bytes.Join(parts, nil)
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, field<<3|2), uint64(len(content))),
		content...)
}

// forged is a profile with samples of one type, whose locations are all one, of so many functions.
func forged(t testing.TB, functions int, samples ...[]byte) []byte {
	t.Helper()
	f := &profile.Function{ID: 1, Name: "f"}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "space", Unit: "bytes"}},
		Function:   []*profile.Function{f},
		Location:   []*profile.Location{{ID: 1, Line: make([]profile.Line, functions)}},
	}
	for i := range p.Location[0].Line {
		p.Location[0].Line[i].Function = f
	}
	var out bytes.Buffer
	tracertest.NoError(t, p.WriteUncompressed(&out))
	return append(out.Bytes(), bytes.Join(samples, nil)...)
}

func TestRead(t *testing.T) {
	p := tracertest.Must(Build(holdings(), info()))(t)
	var plain, packed bytes.Buffer
	tracertest.NoError(t, p.WriteUncompressed(&plain))
	tracertest.NoError(t, p.Write(&packed))
	for _, data := range []*bytes.Buffer{&plain, &packed} {
		if got, err := Read(data); err != nil || got.String() != p.String() {
			t.Errorf("%v, %v", got, err)
		}
	}

	t.Run("forged profiles", func(t *testing.T) {
		value, sample := message(2, []byte{1}),
			message(2, message(1, []byte{1}), message(2, []byte{1}))
		locations := func(n int) []byte {
			return message(2, message(1, bytes.Repeat([]byte{1}, n)), value)
		}
		// A key of more than 64 bits.
		key := []byte{2<<3 | 2 | 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7e}
		long := append(key, locations(maxProfileParts)[1:]...)
		for says, data := range map[string][]byte{
			"the file is empty": {}, "larger than 33554432 bytes": make([]byte, maxProfileBytes+1),
			"not a pprof profile":     []byte("heap profile: 1: 2 [3: 4] @ heap/1\n"),
			"or damaged":              []byte("\xff\xff\xff"),
			"more than 1500000 parts": forged(t, 1, locations(maxProfileParts)),
			"1500000 parts":           forged(t, 1, bytes.Repeat(message(2), maxProfileParts)),
			"00000 parts":             forged(t, 1, message(4, bytes.Repeat(message(4), maxProfileParts))),
			"0 parts":                 message(13, bytes.Repeat([]byte{1}, maxProfileParts)),
			"parts":                   append(forged(t, 1), long...),
			"more than 2000000 frames in its stacks": forged(t, 1000,
				bytes.Repeat(sample, maxStackFrames/1000+1)),
		} {
			file := zipped(t, data)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Read(file)
			runtime.ReadMemStats(&after)
			exporttest.WantError(t, err, says)
			if took := after.TotalAlloc - before.TotalAlloc; took > 400<<20 {
				t.Errorf("%s: %d bytes were allocated", says, took)
			}
		}
		for name, data := range map[string][]byte{
			"parts":  forged(t, 1, locations(maxProfileParts-100)),
			"frames": forged(t, 1000, bytes.Repeat(sample, maxStackFrames/1000)),
		} {
			if _, err := Read(zipped(t, data)); err != nil {
				t.Errorf("%s that are just allowed: %v", name, err)
			}
		}
	})
}

// All parts that the parser takes must have been counted, in any form.
func FuzzCountParts(f *testing.F) {
	sample := message(2, message(1, []byte{1, 1}), message(2, []byte{1}), message(3, []byte{8, 1}))
	f.Add(forged(f, 2, sample, message(13, []byte{1, 2})))
	f.Add([]byte{0x92, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7e, 2, 8, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := profile.ParseUncompressed(data)
		if err != nil {
			return
		}
		least := len(p.Sample) + len(p.Location) + len(p.Function) + len(p.Mapping) +
			len(p.SampleType) + len(p.Comments)
		for _, s := range p.Sample {
			least += len(s.Location) + len(s.Value) + len(s.Label) + len(s.NumLabel)
		}
		for _, l := range p.Location {
			least += len(l.Line)
		}
		if counted := countParts(data); counted < least {
			t.Errorf("%d parts are counted of %d", counted, least)
		}
	})
}

func TestDropFrames(t *testing.T) {
	p := func(drop, keep, name string) *profile.Profile {
		leaf, main := &profile.Function{ID: 1, Name: name}, &profile.Function{ID: 2, Name: "main"}
		out := &profile.Profile{
			DropFrames: drop, KeepFrames: keep, Function: []*profile.Function{leaf, main},
		}
		for _, f := range out.Function {
			out.Location = append(out.Location,
				&profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}})
		}
		out.Sample = []*profile.Sample{{Location: out.Location}}
		return out
	}
	for keep, want := range map[string]int{"": 1, "malloc": 2} {
		dropped := p("mal+oc", keep, "malloc")
		if err := DropFrames(dropped); err != nil || len(dropped.Sample[0].Location) != want {
			t.Errorf("left: %v, %v", dropped.Sample[0].Location, err)
		}
	}
	long := strings.Repeat("x", 10<<20)
	for says, bad := range map[string]*profile.Profile{
		"missing closing": p("(", "", "f"), "keep_frames": p("f", "(", "f"),
		"too long for":        p(strings.Repeat("(x*|y)", 1000), "", long),
		"frames too long for": p("f", "((x{30}){30})*", long),
	} {
		if err := DropFrames(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if err := DropFrames(p(growth.AllocatorFunctions, "", long)); err != nil {
		t.Errorf("our own expression with 10 MiB of names: %v", err)
	}
}
