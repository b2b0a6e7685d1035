package compare

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func sumOf(samples []*pprof.Sample, index int) (sum int64) {
	for _, s := range samples {
		sum += s.Value[index]
	}
	return sum
}

// TestMinus compares the difference with the result of `go tool pprof -diff_base`, which adds up by
// function.
func TestMinus(t *testing.T) {
	a, b := mixed(t, interval)
	diff := tracertest.Must(Minus(b, a, 1))(t)
	dir := t.TempDir()
	files := map[string]string{}
	for name, p := range map[string]*pprof.Profile{"a": a, "b": b, "d": diff} {
		var file bytes.Buffer
		tracertest.NoError(t, p.Write(&file))
		files[name] = filepath.Join(dir, name)
		tracertest.NoError(t, os.WriteFile(files[name], file.Bytes(), 0o600))
	}

	top := func(arguments ...string) map[string]int64 {
		t.Helper()
		out, err := exec.Command("go", append([]string{
			"tool", "pprof", "-top", "-unit=B", "-symbolize=none", "-nodecount=10000",
			"-nodefraction=0", "-edgefraction=0", "-sample_index=resident_space",
		}, arguments...)...).Output()
		tracertest.NoError(t, err)
		rows := make(map[string]int64)
		for _, row := range topRow.FindAllSubmatch(out, -1) {
			if bytes, _ := strconv.ParseInt(string(row[1]), 10, 64); bytes != 0 {
				rows[string(row[2])] = bytes
			}
		}
		return rows
	}
	got, want := top(files["d"]), top("-diff_base="+files["a"], files["b"])
	if len(want) < 8 || len(got) != len(want) {
		t.Errorf("%d functions, want %d", len(got), len(want))
	}
	for name, bytes := range want {
		if got[name] != bytes {
			t.Errorf("%s: %d, by go tool pprof -diff_base %d", name, got[name], bytes)
		}
	}

	none, err := Minus(a, a, 1)
	if err != nil || len(none.Sample) != 0 {
		t.Errorf("a profile less itself has %d samples, %v", len(none.Sample), err)
	}
	half := tracertest.Must(Minus(a, a, 0.5))(t)
	if got, want := sumOf(half.Sample, 4), sumOf(a.Sample, 4)/2; got < want-100 || got > want+100 {
		t.Errorf("a profile less half of itself is %d, want about %d", got, want)
	}
}

func TestOfProcess(t *testing.T) {
	p := profileOf(t, 1, heap(stack(1, "load", "main"), 10, 1000), heap(stack(2, "load", "main"), 3, 1000))
	if got := OfProcess(p.Copy(), "2"); len(got.Sample) != 1 || got.Sample[0].Value[4] != 3000 {
		t.Errorf("%v", got.Sample)
	}
	if got := OfProcess(p.Copy(), "3"); len(got.Sample) != 0 {
		t.Errorf("%v", got.Sample)
	}
	for _, s := range p.Sample {
		delete(s.Label, "pid")
	}
	if got := OfProcess(p.Copy(), "3"); len(got.Sample) != 2 {
		t.Errorf("without processes: %v", got.Sample)
	}
}
