package main

import (
	"slices"

	"github.com/allocscope/allocscope/cmd/allocscope/live"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// deviceLook is what the live screen says of device memory until the trace has ended. The zero value is before the first look.
type deviceLook struct {
	verdict       *summary.Verdict
	advice, blame string
}

// take takes what was judged.
func (l *deviceLook) take(judged growth.Verdict, advice string, culprits []growth.Culprit) {
	v := summary.VerdictOf(judged, summary.AxisSeconds)
	*l = deviceLook{verdict: &v, advice: advice, blame: blameOf(culprits)}
}

// blameOf is whose code most of the growth is; empty where nobody is known.
func blameOf(culprits []growth.Culprit) string {
	if len(culprits) == 0 {
		return ""
	}
	c := summary.SuspectOf(culprits[0])
	return c.Component + ": " + words.Suspect(c)
}

// deviceMeasures are sizes on GPUs, in the order of live.Device's: the one that says most first.
var deviceMeasures = []func(*growth.Sample) int64{
	func(s *growth.Sample) int64 { return s.DeviceUsed },
	func(s *growth.Sample) int64 { return s.CudaReserved },
	func(s *growth.Sample) int64 { return s.CudaDriver },
	func(s *growth.Sample) int64 { return s.CudaAllocated },
}

// lately is how many of the last samples are asked: one reading that fails is no change.
const lately = 10

// latest is what a measure was when it was last known, lately.
func latest(t growth.Timeline, of func(*growth.Sample) int64) int64 {
	for i := range min(lately, len(t)) {
		if value := of(&t[len(t)-1-i]); value != growth.Unknown {
			return value
		}
	}
	return growth.Unknown
}

// A deviceCourse is the course of device memory of a process.
type deviceCourse struct {
	track   *growth.Track
	measure int // of deviceMeasures, whose course it is
	trail   live.Trail
}

// follow adds the newest size to the trail, which begins anew where the trace turns to another process or to another measure.
func (c *deviceCourse) follow(track *growth.Track) {
	measure := slices.IndexFunc(deviceMeasures, func(of func(*growth.Sample) int64) bool { return latest(track.Timeline, of) != growth.Unknown })
	from := len(track.Timeline) - 1
	if track != c.track || measure != c.measure {
		*c, from = deviceCourse{track: track, measure: measure}, 0
	}
	if measure < 0 {
		return
	}
	for i := range track.Timeline[from:] {
		s := &track.Timeline[from+i]
		if bytes := deviceMeasures[measure](s); bytes != growth.Unknown {
			c.trail = c.trail.With(s.Elapsed, bytes)
		}
	}
}

// device is what the screen shows of a process's device memory; nil where it has had none.
func (d *liveDisplay) device(track *growth.Track) *live.Device {
	d.onDevice.follow(track)
	if d.onDevice.trail.Max <= 0 {
		return nil
	}
	p := d.looks
	s := &live.Device{
		Used: latest(track.Timeline, deviceMeasures[0]), Reserved: latest(track.Timeline, deviceMeasures[1]), Called: latest(track.Timeline, deviceMeasures[2]),
		Allocated: latest(track.Timeline, deviceMeasures[3]), Trail: d.onDevice.trail,
		Verdict: p.device.verdict, Diagnosis: p.device.advice, Blame: p.device.blame, Stacks: p.seen.deviceStacks,
	}
	s.Total, s.Room = gpuTotal(d.r.history.GPUs, track.PID), growth.RoomOnGPUs(d.r.history.GPUs, track.PID)
	return s
}

// gpuTotal is the size of the GPU that a process uses. Of several it is not told: which of them fills first is told by the room.
func gpuTotal(gpus []growth.GPUSample, pid int) int64 {
	if own := growth.OfGPUs(gpus, pid); len(own) == 1 {
		return own[0].Total
	}
	return growth.Unknown
}

// onDevices is a snapshot with what a process's stacks hold on GPUs, as if that were all.
func onDevices(s *growth.Snapshot, pid int) *growth.Snapshot {
	own := *s
	own.Holdings = nil
	for _, h := range s.DeviceHoldings {
		if h.Stack.PID == pid && h.Stack.Root == "" {
			h.InuseBytes = h.DeviceBytes // what stands for itself: a segment that is made of blocks does not
			own.Holdings = append(own.Holdings, h)
		}
	}
	return &own
}
