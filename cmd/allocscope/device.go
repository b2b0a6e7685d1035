package main

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// judgedDevice is a traced process with the judgement of its memory on GPUs.
type judgedDevice struct {
	track *growth.Track
	growth.DeviceJudgement
}

// judgeDevices judges the device memory of all traced processes that have any, in the order of what was judged of their RSS.
func (r *recorder) judgeDevices(all []judged) []judgedDevice {
	var devices []judgedDevice
	for _, f := range all {
		if j, known := growth.JudgeDevice(r.caseOf(f.track)); known {
			devices = append(devices, judgedDevice{f.track, j})
		}
	}
	return devices
}

// worstDevice is the one whose verdict is worst; nil: there is none.
func worstDevice(all []judgedDevice) *judgedDevice {
	var most *judgedDevice
	for i := range all {
		if most == nil || all[i].Class.Severity() > most.Class.Severity() {
			most = &all[i]
		}
	}
	return most
}

// lookAtDevices says so when enough looks at a trace without a known end have found a leak of device memory.
func (r *recorder) lookAtDevices(all []judged) {
	worst := worstDevice(r.judgeDevices(all))
	if worst == nil || !r.deviceLooks.Add(worst.Verdict) {
		return
	}
	slog.Warn(fmt.Sprintf("device memory of PID %d: %s%s", worst.track.PID, words.Headline(summary.VerdictOf(worst.Verdict, summary.AxisSeconds)), blame(worst.Culprits)))
}

// settleDevices makes of the last look what repeated looks allow, as settle does.
func (r *recorder) settleDevices(all []judgedDevice) {
	worst := worstDevice(all)
	if r.deviceLooks == nil || worst == nil {
		return
	}
	r.deviceLooks.Add(worst.Verdict)
	agree, of := r.deviceLooks.Agreeing()
	for i := range all {
		if d := &all[i]; d.Class == growth.ClassLeak && agree < of {
			d.Class, d.Why = growth.ClassSuspected, fewLooksAgree(agree, of)
		}
	}
}

// devices are the device memory of processes, as the summary tells it.
func (r *recorder) devices(all []judgedDevice) []summary.GPUMemory {
	var devices []summary.GPUMemory
	for _, d := range all {
		devices = append(devices, summary.GPUMemoryOf(r.deviceCase(d)))
	}
	return devices
}

func (r *recorder) deviceCase(d judgedDevice) summary.GPUInput {
	span := r.seenOnDevices(d.track, r.choose(judged{d.track, growth.Judgement{Window: d.Window}}))
	own := func(s *growth.Snapshot) *growth.Snapshot { return s.Of(d.track.PID) }
	c := summary.GPUInput{
		Track: d.track, Judgement: d.DeviceJudgement, Start: own(span.start), End: own(span.end),
		Headroom: growth.RoomOnGPUs(r.history.GPUs, d.track.PID), Components: r.flags.owners.rules, Rows: rowsOfAKind, Suspects: topStacks, Stacks: mostStacks,
	}
	for _, s := range r.snapshots {
		c.Snapshots = append(c.Snapshots, s.Of(d.track.PID))
	}
	return c
}

// seenOnDevices moves the ends of a span to where a process was looked at, as lookedAt does: from before its first snapshot to the first,
// from after its death to the last in which it had something on a GPU.
func (r *recorder) seenOnDevices(track *growth.Track, s span) span {
	has := func(s *growth.Snapshot) bool {
		return slices.ContainsFunc(s.Devices, func(d growth.Device) bool { return d.PID == track.PID })
	}
	own := r.snapshotsOf(track)
	if len(own) > 0 && !slices.Contains(own, s.start) {
		s.start = own[0]
	}
	for i := len(own) - 1; i >= 0 && !has(s.end); i-- {
		if has(own[i]) {
			s.end = own[i]
		}
	}
	return s
}

// grownOnDevices is what accumulated on GPUs in a span, with the trends that were judged.
func grownOnDevices(span span, all []judgedDevice) []growth.Holding {
	grown := growth.Between(span.start.OnDevices(), span.end.OnDevices())
	var trends []growth.StackTrend
	for _, d := range all {
		trends = append(trends, d.Trends...)
	}
	growth.Label(grown, trends)
	return grown
}

// deviceComments are what a profile says of device memory.
func deviceComments(all []judgedDevice) []string {
	var comments []string
	for i := range all {
		d := &all[i]
		comments = append(comments, fmt.Sprintf("device memory of PID %d: %s; %s", d.track.PID, words.Headline(summary.VerdictOf(d.Verdict, summary.AxisSeconds)), d.Diagnosis))
	}
	return comments
}

// outcomesOf are the verdicts of a trace, on RSS and on device memory.
func outcomesOf(host growth.Class, devices []judgedDevice) []outcome {
	all := []outcome{{"the verdict", host}}
	for _, d := range devices {
		all = append(all, outcome{fmt.Sprintf("the verdict on the device memory of PID %d", d.track.PID), d.Class})
	}
	return all
}
