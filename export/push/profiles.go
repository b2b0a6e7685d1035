package push

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"github.com/google/uuid"

	"github.com/allocscope/allocscope/export/folder"
	ours "github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// Phases of a trace: the live memory at the baseline and at the end, and the growth between them.
const (
	PhaseBaseline = "baseline"
	PhaseEnd      = "end"
	PhaseGrowth   = "growth"
)

// Labels of all profiles.
const (
	labelName_   = "__name__"
	labelService = "service_name"
	labelPhase   = "phase"
)

// profileName is Pyroscope's name for memory profiles of all languages. serviceName is the service,
// unless the user names another.
const (
	profileName = "memory"
	serviceName = "allocscope"
)

// sampleTypes are those that are pushed. Each of them, and each set of labels, is a series of
// Pyroscope. Pyroscope takes alloc_space of a profile of this name for a counter, and subtracts the
// last one.
var sampleTypes = []string{
	"resident_space", "inuse_space", "device_space", "device_reserved_space",
}

// ProfileType is how a query of Pyroscope names one of the sample types in bytes that are pushed:
// resident_space, inuse_space, device_space, device_reserved_space.
func ProfileType(sampleType string) string {
	return profileName + ":" + sampleType + ":bytes:space:bytes"
}

// Bounds on a profile. Pyroscope takes 16,000 samples, and 2 MB uncompressed at a time, unless it
// is set up for more. All samples beyond are one.
const (
	maxSamples      = 15_000
	maxProfileBytes = 1_500_000
	smallerStacks   = "[smaller stacks]"
)

// A labeledProfile is a profile with its labels.
type labeledProfile struct {
	labels map[string]string
	*profile.Profile
}

// profilesOf returns the profiles of the traced processes in a folder. Processes with equal labels
// share one: Pyroscope would take the second one for the first one sent again. Labels of later maps
// win.
func profilesOf(
	f *folder.Folder, s *summary.Summary, more []map[string]string,
) (all []labeledProfile, err error) {
	for _, phase := range []struct{ name, file string }{
		{PhaseBaseline, folder.WarmupFile},
		{PhaseEnd, folder.PlateauFile},
		{PhaseGrowth, folder.GrowthFile},
	} {
		var p *profile.Profile
		if err := f.ReadFile(phase.file, func(r io.Reader) (err error) {
			p, err = ours.Read(r)
			return err
		}); err != nil {
			return nil, err
		}
		if err := simplify(p, ended(s)); err != nil {
			return nil, fmt.Errorf("%s: %w", phase.file, err)
		}

		for _, part := range split(p, s, more) {
			part.labels[labelPhase] = phase.name
			if part.Profile, err = part.bounded(); err != nil {
				return nil, fmt.Errorf("%s: %w", phase.file, err)
			}
			if part.Profile != nil {
				all = append(all, part)
			}
		}
	}

	return all, nil
}

// ended is when a trace ended. It is the time of all its profiles: they are found together, and
// Pyroscope refuses a baseline that is older than an hour.
func ended(s *summary.Summary) time.Time {
	return s.Started.Add(time.Duration(s.DurationS * float64(time.Second)))
}

// simplify drops all that Pyroscope does not show: the frames of the allocators, as pprof does;
// addresses, which differ between ranks; comments; and sample types that are not pushed.
func simplify(p *profile.Profile, at time.Time) error {
	if err := ours.DropFrames(p); err != nil {
		return err
	}
	if err := p.Aggregate(true, true, true, true, true, false); err != nil {
		return err
	}
	for _, m := range p.Mapping {
		m.Start, m.Limit, m.Offset = 0, 0, 0
	}

	var kept []int
	var types []*profile.ValueType
	for _, name := range sampleTypes {
		i := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool {
			return t.Type == name && t.Unit == "bytes"
		})
		if i >= 0 {
			kept, types = append(kept, i), append(types, p.SampleType[i])
		}
	}
	if len(kept) == 0 {
		return errors.New("it has no sample type of memory")
	}

	for _, s := range p.Sample {
		values := make([]int64, len(kept))
		for to, from := range kept {
			values[to] = s.Value[from]
		}
		s.Value = values
	}
	p.SampleType, p.DefaultSampleType = types, types[0].Type
	p.DropFrames, p.KeepFrames, p.Comments, p.DocURL = "", "", nil, ""
	p.TimeNanos = at.UnixNano()
	return nil
}

// split divides a profile among processes. A sample without a process goes to the main one.
func split(p *profile.Profile, s *summary.Summary, more []map[string]string) []labeledProfile {
	parts := make(map[string]*labeledProfile)
	ofPID := make(map[string]*labeledProfile)
	for _, sample := range p.Sample {
		pid := cmp.Or(strings.Join(sample.Label["pid"], ""), strconv.Itoa(s.Process.PID))
		part := ofPID[pid]
		if part == nil {
			labels := labelsOf(pid, s, more)
			key := fmt.Sprintf("%q", labels) // fmt sorts the keys
			if part = parts[key]; part == nil {
				part = &labeledProfile{labels, &profile.Profile{
					SampleType: slices.Clone(p.SampleType), DefaultSampleType: p.DefaultSampleType,
					Mapping: p.Mapping, Location: p.Location, Function: p.Function,
					TimeNanos: p.TimeNanos, DurationNanos: p.DurationNanos,
					PeriodType: p.PeriodType, Period: p.Period,
				}}
				parts[key] = part
			}
			ofPID[pid] = part
		}
		part.Sample = append(part.Sample,
			&profile.Sample{Location: sample.Location, Value: sample.Value})
	}

	var all []labeledProfile
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		all = append(all, *parts[key])
	}
	return all
}

// labelsOf are the labels of the profiles of a process.
func labelsOf(pid string, s *summary.Summary, more []map[string]string) map[string]string {
	labels := map[string]string{labelName_: profileName, labelService: serviceName}
	set := func(name, value string) {
		if value != "" {
			labels[name] = growth.Truncate(growth.Printable(value), maxLabelBytes)
		}
	}
	number := func(name string, value *int) {
		if value != nil {
			set(name, strconv.Itoa(*value))
		}
	}

	for _, p := range s.Processes {
		if !p.Traced || strconv.Itoa(p.PID) != pid {
			continue
		}
		set("role", string(p.Role))
		number("rank", p.Rank)
		if i := p.Identity; i != nil {
			set("job_id", i.Job)
			set("run_id", i.RunID)
			set("slurm_job_id", i.SlurmJob)
			number("rank", i.Rank)
			number("local_rank", i.LocalRank)
			number("world_size", i.WorldSize)
			set("node", i.Node)
			set("pod", i.Pod)
			set("container", i.Container)
		}
	}

	for _, own := range more {
		maps.Copy(labels, own)
	}
	return labels
}

// bounded adds up samples of one stack, drops the negative values, and entries that are not used
// any more, and makes one sample of the smallest stacks, as far as the bounds need it. It returns
// nil where nothing is left.
func (l *labeledProfile) bounded() (*profile.Profile, error) {
	p := l.Compact()
	for _, s := range p.Sample {
		for i, value := range s.Value {
			s.Value[i] = max(0, value)
		}
	}
	slices.SortStableFunc(p.Sample, func(a, b *profile.Sample) int {
		return cmp.Compare(slices.Max(b.Value), slices.Max(a.Value))
	})
	n := len(p.Sample)
	for n > 0 && slices.Max(p.Sample[n-1].Value) == 0 {
		n--
	}
	p.Sample = p.Sample[:n]
	if n == 0 {
		return nil, nil
	}
	dropEmptyTypes(p)

	for keep := min(n, maxSamples); ; keep /= 2 {
		p = withSmaller(p, keep)
		var size bytes.Buffer
		if err := p.WriteUncompressed(&size); err != nil {
			return nil, err
		}
		if size.Len() <= maxProfileBytes || keep == 0 {
			return p, p.CheckValid()
		}
	}
}

// dropEmptyTypes drops sample types that no sample has, but for the first one.
func dropEmptyTypes(p *profile.Profile) {
	for i := len(p.SampleType) - 1; i > 0; i-- {
		if slices.ContainsFunc(p.Sample, func(s *profile.Sample) bool { return s.Value[i] != 0 }) {
			continue
		}
		p.SampleType = slices.Delete(p.SampleType, i, i+1)
		for _, s := range p.Sample {
			s.Value = slices.Delete(s.Value, i, i+1)
		}
	}
}

// withSmaller makes one sample of all but the first ones.
func withSmaller(p *profile.Profile, keep int) *profile.Profile {
	if keep >= len(p.Sample) {
		return p.Compact()
	}

	rest := &profile.Sample{Value: make([]int64, len(p.SampleType))}
	for _, s := range p.Sample[keep:] {
		for i, value := range s.Value {
			rest.Value[i] += value
		}
	}
	function := &profile.Function{ID: uint64(len(p.Function) + 1), Name: smallerStacks}
	location := &profile.Location{
		ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: function}},
	}
	rest.Location = []*profile.Location{location}
	p.Function, p.Location = append(p.Function, function), append(p.Location, location)
	p.Sample = append(p.Sample[:keep:keep], rest)
	return p.Compact()
}

// The JSON of push.v1.PushRequest. See
// https://github.com/grafana/pyroscope/blob/v1.12.0/api/push/v1/push.proto.
type (
	pushRequest struct {
		Series []pushSeries `json:"series"`
	}
	pushSeries struct {
		Labels  []pushLabel  `json:"labels"`
		Samples []pushSample `json:"samples"`
	}
	pushLabel struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	pushSample struct {
		ID         string `json:"ID"`
		RawProfile []byte `json:"rawProfile"` // gzipped pprof; base64 in JSON
	}
)

// request returns the body of a request, and its ID. IDs sort by age.
func (l *labeledProfile) request() (id string, body []byte, err error) {
	made, err := uuid.NewV7()
	if err != nil {
		return "", nil, err
	}
	var raw bytes.Buffer
	if err := l.Write(&raw); err != nil {
		return "", nil, err
	}

	series := pushSeries{Samples: []pushSample{{made.String(), raw.Bytes()}}}
	for _, name := range slices.Sorted(maps.Keys(l.labels)) {
		series.Labels = append(series.Labels, pushLabel{name, l.labels[name]})
	}
	body, err = json.Marshal(pushRequest{[]pushSeries{series}})
	return made.String(), body, err
}

// checkRequest returns the fault of a body that request has not made.
func checkRequest(body []byte, id string) error {
	var r pushRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return errors.New("it is no JSON of a request")
	}
	if len(r.Series) != 1 || len(r.Series[0].Samples) != 1 || len(r.Series[0].Labels) == 0 ||
		r.Series[0].Samples[0].ID != id {
		return errors.New("it is not a request of one profile with its ID")
	}
	_, err := ours.Read(bytes.NewReader(r.Series[0].Samples[0].RawProfile))
	return err
}
