package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/allocscope/allocscope/export/ranks"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// recordedAt is the end of the recorded traces.
var recordedAt = time.UnixMilli(1795659434995)

func sinceRecorded() time.Duration { return time.Since(recordedAt).Abs() + time.Hour }

func pyroscopeOf(t *testing.T, answer http.HandlerFunc) Pyroscope {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return Pyroscope{Server{Name: "Pyroscope", URL: server.URL}}
}

// A question is a decoded SelectMergeProfileRequest, or SelectSeriesRequest.
type question struct {
	ProfileTypeID, LabelSelector string
	Start, End                   int64
}

// questionOf decodes the body of a request.
func questionOf(t *testing.T, r *http.Request) (q question) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	if r.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(body, &q); err != nil {
			t.Error(err)
		}
		return q
	}
	for len(body) > 0 {
		number, kind, n := protowire.ConsumeTag(body)
		body = body[max(n, 0):]
		if kind == protowire.BytesType {
			text, n := protowire.ConsumeString(body)
			body = body[max(n, 0):]
			if number == 1 {
				q.ProfileTypeID = text
			} else {
				q.LabelSelector = text
			}
			continue
		}
		value, n := protowire.ConsumeVarint(body)
		if n < 0 {
			t.Error("the question is damaged")
			return q
		}
		body = body[n:]
		if number == 3 {
			q.Start = int64(value)
		} else {
			q.End = int64(value)
		}
	}
	return q
}

// recordedPyroscope has the answers of Pyroscope 1.12.0 on the profiles of ranks 0 and 3, which
// allocscope had pushed (testdata/pyroscope). It has none of other ranks and sample types.
func recordedPyroscope(t *testing.T) Pyroscope {
	return pyroscopeOf(t, func(w http.ResponseWriter, r *http.Request) {
		q := questionOf(t, r)
		file := ""
		for _, rank := range []string{"0", "3"} {
			for _, phase := range []string{"end", "baseline", "growth"} {
				if q.LabelSelector == fmt.Sprintf(`{job_id="resnet50-17",rank=%q,phase=%q}`, rank, phase) {
					file = "rank" + rank + "." + phase + ".pb"
				}
			}
		}
		isSeries := strings.HasSuffix(r.URL.Path, "/SelectSeries")
		if q.ProfileTypeID != "memory:resident_space:bytes:space:bytes" || file == "" {
			if isSeries {
				fmt.Fprint(w, "{}")
			}
			return
		}
		if isSeries {
			file = file[:len("rank0.")] + "series.json"
		} else if at := recordedAt.UnixMilli(); q.Start > at || q.End < at || q.End-q.Start > 4*time.Hour.Milliseconds() {
			t.Errorf("from %d to %d, and the trace ended at %d", q.Start, q.End, at)
		}
		data, err := os.ReadFile(filepath.Join("testdata/pyroscope", file))
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(data)
	})
}

// rankOf is a rank that Prometheus knows without a trace.
func rankOf(number int) *ranks.Rank {
	k := new(ranks.Rank)
	k.SetNumber(number)
	return k
}

func TestRecordedGrowth(t *testing.T) {
	p := recordedPyroscope(t)
	for rank, want := range map[int]map[string]int64{
		3: {"evaluate": 716 << 20, "train_step": 90 << 20}, 0: {"train_step": 92 << 20},
	} {
		grown, err := p.Growth(t.Context(), "resnet50-17", rankOf(rank), sinceRecorded())
		tracertest.NoError(t, err)
		if len(grown.SampleType) != 1 || grown.SampleType[0].Type != "resident_space" {
			t.Fatalf("rank %d: %v", rank, grown.SampleType)
		}

		got := make(map[string]int64)
		for _, s := range grown.Sample {
			got[s.Location[0].Line[0].Function.Name] += s.Value[0]
		}
		for name, bytes := range want {
			if d := got[name] - bytes; d > 3<<20 || d < -3<<20 {
				t.Errorf("rank %d: %s gained %d bytes, want about %d", rank, name, got[name], bytes)
			}
		}
	}

	if _, err := p.Growth(t.Context(), "resnet50-17", rankOf(1), sinceRecorded()); !errors.Is(err, ErrNoProfile) {
		t.Errorf("a rank without a trace: %v", err)
	}
}

// Pyroscope has no length of a trace. The metrics have the length of the agent's last one.
func TestTraceLength(t *testing.T) {
	p := recordedPyroscope(t)
	for what, test := range map[string]struct {
		ended time.Time
		want  time.Duration
	}{
		"the same trace":   {recordedAt.Add(3 * time.Second), 90 * time.Second},
		"an earlier trace": {recordedAt.Add(-24 * time.Hour), 0},
		"a later trace":    {recordedAt.Add(24 * time.Hour), 0},
		"none":             {time.Time{}, 0},
	} {

		k := rankOf(3)
		k.TraceEnded, k.TraceLength = test.ended, 90*time.Second

		grown, err := p.Growth(t.Context(), "resnet50-17", k, sinceRecorded())
		if err != nil || grown.DurationNanos != test.want.Nanoseconds() {
			t.Errorf("%s: %d ns, %v", what, grown.DurationNanos, err)
		}
	}
}

// The profiles of a rank whose number is local are its node's.
func TestLocalRank(t *testing.T) {
	asked := 0
	p := pyroscopeOf(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		if q := questionOf(t, r); !strings.HasSuffix(q.LabelSelector, `,node="node-1"}`) {
			t.Error(q.LabelSelector)
		}
		fmt.Fprint(w, "{}")
	})

	k := rankOf(3)
	k.Node, k.IsLocal = "node-1", true
	if _, err := p.Growth(t.Context(), "x", k, time.Hour); !errors.Is(err, ErrNoProfile) || asked == 0 {
		t.Error(asked, err)
	}
}

// Without a baseline, only the growth is known.
func TestGrowthAlone(t *testing.T) {
	recorded := recordedPyroscope(t)
	p := pyroscopeOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("baseline")) {
			return
		}
		answer, err := http.Post(recorded.URL+r.URL.Path, r.Header.Get("Content-Type"), bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		_, _ = io.Copy(w, answer.Body)
	})
	grown, err := p.Growth(t.Context(), "resnet50-17", rankOf(3), sinceRecorded())
	if err != nil || len(grown.Sample) == 0 {
		t.Fatal(grown, err)
	}
	for _, s := range grown.Sample {
		if s.Value[0] <= 0 {
			t.Errorf("%v", s)
		}
	}
}

func TestHostileProfiles(t *testing.T) {
	now := time.Now().UnixMilli()
	two := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "a", Unit: "b"}, {Type: "c", Unit: "d"}},
		Function:   []*pprof.Function{{ID: 1, Name: "f"}},
	}
	two.Location = []*pprof.Location{{ID: 1, Line: []pprof.Line{{Function: two.Function[0]}}}}
	two.Sample = []*pprof.Sample{{Location: two.Location, Value: []int64{1, 2}}}
	var twoTypes bytes.Buffer
	tracertest.NoError(t, two.Write(&twoTypes))

	series := func(at int64) string {
		return fmt.Sprintf(`{"series":[{"points":[{"value":1,"timestamp":"%d"}]}]}`, at)
	}
	for what, test := range map[string]struct{ series, profile, says string }{
		"a web page":       {"<html>", "", "not one of Pyroscope"},
		"a bad time":       {`{"series":[{"points":[{"timestamp":"soon"}]}]}`, "", "not one of Pyroscope"},
		"long ago":         {series(5), "x", "Pyroscope has none"},
		"far ahead":        {series(1 << 60), "x", "Pyroscope has none"},
		"no profile":       {series(now), "", "Pyroscope has none"},
		"a damaged one":    {series(now), "\x0a\x05nonsense", "not a pprof profile"},
		"two sample types": {series(now), twoTypes.String(), "2 sample types"},
	} {
		p := pyroscopeOf(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/SelectSeries") {
				fmt.Fprint(w, test.series)
			} else {
				fmt.Fprint(w, test.profile)
			}
		})
		_, err := p.Growth(t.Context(), "x", rankOf(1), time.Hour)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", what, err, test.says)
		}
	}
}
