package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	pprof "github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/export/ranks"
	"github.com/allocscope/allocscope/export/units"
)

// A Pyroscope has the profiles that traces have pushed.
type Pyroscope struct{ Server }

const servicePath = "/querier.v1.QuerierService/"

// sampleTypes are those that are asked for, the best first.
var sampleTypes = []string{"resident_space", "inuse_space"}

// ErrNoProfile is that there is no profile of a rank.
var ErrNoProfile = errors.New("Pyroscope has none of that time")

// Growth returns a rank's gains in its last trace since then: its profile at the end less its
// profile at the baseline, which has negative values too; or the profile of the growth, where one
// of the others is not there. Its duration is the length of the trace, by the agent's metrics; 0:
// it is not known. That there is no trace is ErrNoProfile.
func (p Pyroscope) Growth(ctx context.Context, job string, rank *ranks.Rank, since time.Duration) (
	*pprof.Profile, error,
) {
	now := time.Now()
	for _, sampleType := range sampleTypes {
		q := rankQuery{
			Pyroscope: p, job: job, rank: rank, sampleType: sampleType,
			span: span{now.Add(-since), now.Add(time.Minute)}, // the clocks may differ
		}
		last, err := q.lastTrace(ctx)
		if err != nil {
			return nil, err
		}
		if last == nil {
			continue
		}
		q.span = *last

		profiles := make(map[string]*pprof.Profile)
		for _, phase := range []string{push.PhaseEnd, push.PhaseBaseline, push.PhaseGrowth} {
			if profiles[phase], err = q.merged(ctx, phase); err != nil {
				return nil, err
			}
		}
		end, baseline, grown := profiles[push.PhaseEnd], profiles[push.PhaseBaseline],
			profiles[push.PhaseGrowth]

		if end != nil && baseline != nil {
			if grown, err = compare.Minus(end, baseline, 1); err != nil {
				return nil, err
			}
		}

		if grown != nil {
			// Pyroscope's duration is the length of the span asked for.
			grown.DurationNanos = q.traceLength().Nanoseconds()
			return grown, nil
		}
	}
	return nil, ErrNoProfile
}

// A span is from one time to another.
type span struct{ from, to time.Time }

// A rankQuery asks for profiles of one rank, of one sample type, in a span.
type rankQuery struct {
	Pyroscope
	job        string
	rank       *ranks.Rank
	sampleType string
	span
}

// maxWriting bounds the time from the end of a trace until the agent has its result.
const maxWriting = time.Minute

// traceLength is the length of the trace that ended in the span; 0: it is not the agent's last one.
func (q rankQuery) traceLength() time.Duration {
	ended := q.rank.TraceEnded
	if ended.Before(q.from) || ended.After(q.to.Add(maxWriting)) {
		return 0
	}
	return q.rank.TraceLength
}

func (q rankQuery) selector(phase string) string {
	node := ""
	if q.rank.IsLocal {
		node = ",node=" + strconv.Quote(q.rank.Node)
	}
	return fmt.Sprintf("{job_id=%s,rank=%s,phase=%s%s}", strconv.Quote(q.job),
		strconv.Quote(strconv.Itoa(*q.rank.Rank)), strconv.Quote(phase), node)
}

// step is the time between the points of a series: a part of a trace's length.
func (s span) step() time.Duration {
	const points = 2000
	return max(10*time.Second, (s.to.Sub(s.from) / points).Round(time.Second))
}

// lastTrace returns when the last trace ended; nil: there is none. All profiles of a trace have that
// time.
func (q rankQuery) lastTrace(ctx context.Context) (*span, error) {
	from, to, step := q.from.UnixMilli(), q.to.UnixMilli(), q.step()
	question, err := json.Marshal(map[string]any{
		"profileTypeID": push.ProfileType(q.sampleType), "labelSelector": q.selector(push.PhaseEnd),
		"start": from, "end": to, "step": step.Seconds(),
	})
	if err != nil {
		return nil, err
	}
	data, err := q.post(ctx, servicePath+"SelectSeries", "application/json", question)
	if err != nil {
		return nil, err
	}

	var answer struct {
		Series []struct {
			Points []struct{ Timestamp milliseconds }
		}
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("the answer is not one of Pyroscope: %w", err)
	}
	var last int64
	for _, s := range answer.Series {
		for _, point := range s.Points {
			last = max(last, int64(point.Timestamp))
		}
	}
	if last < from || last > to+step.Milliseconds() {
		return nil, nil
	}
	at := time.UnixMilli(last) // the end of a step, or its start
	return &span{at.Add(-step), at.Add(step)}, nil
}

// milliseconds is a time since 1970. JSON of protocol buffers has such numbers as text.
type milliseconds int64

// UnmarshalJSON implements json.Unmarshaler.
func (m *milliseconds) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseInt(string(bytes.Trim(data, `"`)), 10, 64)
	*m = milliseconds(n)
	return err
}

// merged returns the sum of the profiles of a phase; nil: there is none.
func (q rankQuery) merged(ctx context.Context, phase string) (*pprof.Profile, error) {
	question := mergeQuestion(push.ProfileType(q.sampleType), q.selector(phase), q.span)
	data, err := q.post(ctx, servicePath+"SelectMergeProfile", "application/proto", question)
	if err != nil || len(data) == 0 {
		return nil, err
	}

	p, err := profile.Read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the answer of Pyroscope is %w", err)
	}
	if len(p.Sample) == 0 {
		return nil, nil
	}
	if len(p.SampleType) != 1 {
		return nil, fmt.Errorf("the answer of Pyroscope has %s instead of one",
			units.Plural(len(p.SampleType), "sample type", "sample types"))
	}
	p.SampleType = []*pprof.ValueType{{Type: q.sampleType, Unit: "bytes"}}
	return p, nil
}

// mergeQuestion is a querier.v1.SelectMergeProfileRequest. Its answer in the same encoding is a pprof
// profile. See https://github.com/grafana/pyroscope/blob/v1.12.0/api/querier/v1/querier.proto.
func mergeQuestion(profileType, selector string, within span) []byte {
	const fieldType, fieldSelector, fieldStart, fieldEnd = 1, 2, 3, 4
	var b []byte
	b = protowire.AppendTag(b, fieldType, protowire.BytesType)
	b = protowire.AppendString(b, profileType)
	b = protowire.AppendTag(b, fieldSelector, protowire.BytesType)
	b = protowire.AppendString(b, selector)
	b = protowire.AppendTag(b, fieldStart, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(within.from.UnixMilli()))
	b = protowire.AppendTag(b, fieldEnd, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(within.to.UnixMilli()))
}
