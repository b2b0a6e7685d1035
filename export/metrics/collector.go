package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// NewCollector returns a collector of the result of state. It calls it once for each scrape, so
// that the metrics of a scrape are of one moment.
//
// Whatever the state is, the metrics are valid and their number is bounded: texts are made printable
// and short, processes with equal labels are added up, and those beyond a bound count as ignored.
func NewCollector(state func() State) prometheus.Collector { return collector(state) }

type collector func() State

// Describe implements prometheus.Collector.
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, f := range families {
		descs <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	state := c()
	e := emitter{labelOf(state.Node), metrics}

	all, omitted := merge(state.Processes)
	for i := range all {
		e.process(&all[i])
		if all[i].Trace != nil {
			e.trace(all[i].identity, all[i].Trace)
		}
	}

	e.emit(watchedProcesses, float64(state.Watched))
	e.emit(ignoredProcesses, float64(state.Ignored+omitted))
	for _, outcome := range outcomes {
		e.emit(tracesTotal, float64(state.Traces[outcome]), string(outcome))
	}
	e.emit(oomKillsTotal, float64(state.OOMKills))
	e.size(folderBytes, state.FolderBytes)
	e.push(&state)
	e.emit(buildInfo, 1, labelOf(state.Version))
}

// An emitter emits the metrics of one scrape.
type emitter struct {
	node    string
	metrics chan<- prometheus.Metric
}

// emit emits a value with the labels of its name. A value that is not known is left out.
func (e emitter) emit(f *family, value float64, labels ...string) {
	if math.IsNaN(value) {
		return
	}
	m, err := prometheus.NewConstMetric(f.desc, f.kind, value, append(labels, e.node)...)
	if err == nil { // labelOf made the labels valid
		e.metrics <- m
	}
}

// size is emit for sizes, which may be Unknown.
func (e emitter) size(f *family, bytes int64, labels ...string) {
	if bytes != growth.Unknown {
		e.emit(f, float64(bytes), labels...)
	}
}

// with returns the labels of a process, and one more.
func (i identity) with(own ...string) []string {
	return append([]string{i.job, i.rank, i.role}, own...)
}

func (e emitter) process(p *labeledProcess) {
	e.emit(processes, float64(max(p.Count, 1)), p.with()...)
	e.size(residentBytes, p.RSS, p.with()...)
	e.size(memoryBytes, p.Anonymous, p.with("anon")...)
	e.size(memoryBytes, p.File, p.with("file")...)
	e.size(memoryBytes, p.Shmem, p.with("shmem")...)
	e.size(memoryBytes, p.Swap, p.with("swap")...)

	if p.Headroom.Of != "" {
		of := labelOf(p.Headroom.Of)
		e.size(headroomBytes, p.Headroom.Left, p.with(of)...)
		if p.Headroom.Bytes > 0 {
			e.emit(limitBytes, float64(p.Headroom.Bytes), p.with(of)...)
		}
	}

	if p.Verdict == "" {
		return
	}
	e.emit(growthRate, p.Growth, p.with()...)
	e.emit(growthLow, p.GrowthLow, p.with()...)
	e.emit(growthHigh, p.GrowthHigh, p.with()...)
	e.verdict(processVerdict, p.identity, p.Verdict)
	e.emit(timeToLimit, p.ToLimit, p.with()...)
}

func (e emitter) trace(of identity, t *Trace) {
	for _, row := range partsOf(t.Rows) {
		e.emit(rowBytes, row.value, of.with(row.label)...)
	}
	for _, component := range largestComponents(t.Components) {
		e.emit(componentGrowth, component.value, of.with(component.label)...)
	}
	for _, loss := range partsOf(t.Losses) {
		e.emit(losses, loss.value, of.with(loss.label)...)
	}

	e.verdict(traceVerdict, of, t.Verdict)
	e.emit(traceTimestamp, float64(t.At.UnixMilli())/1000, of.with()...)
	e.emit(traceDuration, t.Duration.Seconds(), of.with()...)
	e.emit(slowdownRatio, t.Slowdown, of.with()...)
	e.emit(ownCPU, t.OwnShare, of.with()...)
}

func (e emitter) verdict(f *family, of identity, is verdict.Class) {
	if is == "" {
		return
	}
	for _, class := range classes {
		value := 0.0
		if class == is {
			value = 1
		}
		e.emit(f, value, of.with(string(class))...)
	}
}

func (e emitter) push(state *State) {
	s := state.Push
	if s == nil {
		return
	}
	e.emit(pushProfiles, float64(s.Sent), "sent")
	e.emit(pushProfiles, float64(s.Retried), "retried")
	e.emit(pushProfiles, float64(s.Refused), "refused")
	e.emit(pushProfiles, float64(s.Dropped), "dropped")
	e.emit(pushProfiles, float64(s.Damaged), "damaged")
	e.emit(pushWaiting, float64(s.Waiting))
	e.emit(pushWaitingBytes, float64(s.WaitingBytes))
}
