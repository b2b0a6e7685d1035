package ranks

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// testdata/traces are real traces of 8 ranks for 90 s each. All keep 25,000 bytes in each
// train_step; rank 3 keeps 200,000 more in evaluate. Summaries are without the keys that are not
// used.
func recorded(t *testing.T, number *int) *Result {
	t.Helper()
	paths, err := filepath.Glob("testdata/traces/rank?")
	if err != nil || len(paths) != 8 {
		t.Fatal(paths, err)
	}

	open := func(path string) *folder.Folder {
		dir := tracertest.Must(folder.Open(path, folder.Owner{}))(t)
		t.Cleanup(func() { dir.Close() })
		return dir
	}
	var all []Rank
	for _, path := range paths {
		found := tracertest.Must(ReadFolder(open(path), path))(t)
		all = append(all, found...)
	}
	job, all, err := OfJob(all, "")
	tracertest.NoError(t, err)

	r := Find(job, all, 0.05)
	rank, median, ok := r.Pair(number)
	if !ok {
		t.Fatal("there are no two ranks to compare")
	}
	var traces [2]*compare.Trace
	for i, index := range []int{rank, median} {
		if traces[i], err = ReadGrowth(open(r.Ranks[index].Path), &r.Ranks[index]); err != nil {
			t.Fatal(err)
		}
	}
	tracertest.NoError(t, r.CompareTraces(rank, median, traces[0], traces[1]))
	return r
}

func TestGolden(t *testing.T) {
	six := 6
	for name, r := range map[string]*Result{"outlier": recorded(t, nil), "chosen": recorded(t, &six)} {
		var text, json bytes.Buffer
		tracertest.NoError(t, r.WriteText(&text, 5))
		tracertest.NoError(t, r.WriteJSON(&json))
		exporttest.Golden(t, name+".txt", text.Bytes())
		exporttest.Golden(t, name+".json", json.Bytes())
	}
}

// The lines and the bytes are from the program that was traced, not from a golden file.
func TestRecorded(t *testing.T) {
	r := recorded(t, nil)
	c := r.Comparison
	if r.Outcome != OutcomeOutlier || r.Ranks[0].Name != "rank 3" || r.Ranks[1].StandsOut ||
		c.Site != SiteOnly || c.Where != "evaluate (train.py:13)" {
		t.Errorf("%s: %s: %s, %+v", r.Outcome, r.Name, r.Sentence, c.Site)
	}
	// 225,000 bytes a step, where the others keep 25,000.
	if ratio := *r.Ranks[0].Rate / *r.Median; ratio < 8 || ratio > 10 {
		t.Errorf("rank 3 grows %.2f times as fast, want 9", ratio)
	}

	var file bytes.Buffer
	tracertest.NoError(t, r.WriteProfile(&file))
	p := tracertest.Must(compare.ParseProfile(&file))(t)
	gained := make(map[string]int64)
	for _, s := range p.Sample {
		gained[s.Location[0].Line[0].Function.Name] += s.Value[4]
		for _, name := range []string{"pid", "rank", "process"} {
			if s.Label[name] != nil {
				t.Errorf("a sample has the label %s", name)
			}
		}
	}
	if e, s := gained["evaluate"], gained["train_step"]; e < 100<<20 || s > e/20 || s < -e/20 {
		t.Errorf("evaluate gained %d bytes, train_step %d", e, s)
	}
}
