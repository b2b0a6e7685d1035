package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/allocscope/allocscope/growth/verdict"
)

// A family is the series of one name. Names follow
// https://prometheus.io/docs/practices/naming/.
type family struct {
	name string
	kind prometheus.ValueType
	// labels besides node.
	labels []string
	help   string
	// absent is when there is no series, for the docs; empty: there always is one.
	absent string
	desc   *prometheus.Desc
}

// families are all, in the order of the docs.
var families []*family

func newFamily(
	name string, kind prometheus.ValueType, labels []string, help, absent string,
) *family {
	f := &family{
		name: name, kind: kind, labels: labels, help: help, absent: absent,
		desc: prometheus.NewDesc(name, help, append(slices.Clone(labels), nodeLabel), nil),
	}
	families = append(families, f)
	return f
}

func gauge(name string, labels []string, help, absent string) *family {
	return newFamily(name, prometheus.GaugeValue, labels, help, absent)
}

func counter(name string, labels []string, help, absent string) *family {
	return newFamily(name, prometheus.CounterValue, labels, help, absent)
}

// The names of labels. None is called job or instance, which Prometheus gives to each target.
const (
	nodeLabel      = "node"
	jobLabel       = "job_id"
	rankLabel      = "rank"
	roleLabel      = "role"
	memoryLabel    = "memory"
	limitLabel     = "limit"
	verdictLabel   = "verdict"
	rowLabel       = "row"
	componentLabel = "component"
	lossLabel      = "loss"
	outcomeLabel   = "outcome"
	versionLabel   = "version"
)

// ofProcess are the labels of a process, and of each series of it.
func ofProcess(own ...string) []string {
	return append([]string{jobLabel, rankLabel, roleLabel}, own...)
}

// Why a series of a process is absent.
const (
	notReadable = "the kernel does not show it"
	noVerdict   = "there is no verdict yet"
	noRate      = "it is too early for a rate"
	noTrace     = "there was no trace of the process"
	noPush      = "profiles are not pushed"
)

// The families. A process's families from the kernel come every second; its families from traces
// stay until the next one.
var (
	processes = gauge("allocscope_processes", ofProcess(),
		"Watched processes with these labels.", "")
	residentBytes = gauge("allocscope_process_resident_bytes", ofProcess(),
		"Memory in RAM (RSS), as the kernel counts it.", notReadable)
	memoryBytes = gauge("allocscope_process_memory_bytes", ofProcess(memoryLabel),
		"Memory by the kernel's kinds: anon, file and shmem sum to RSS; swap is swapped out.",
		notReadable)
	limitBytes = gauge("allocscope_process_limit_bytes", ofProcess(limitLabel),
		"The limit that the process meets first, and whose it is.",
		"no limit is known, or the machine's memory is the first one")
	headroomBytes = gauge("allocscope_process_headroom_bytes", ofProcess(limitLabel),
		"Memory left until that limit.", "no limit is known")
	growthRate = gauge("allocscope_process_growth_bytes_per_second", ofProcess(),
		"Growth of RSS after warm-up.", noRate)
	growthLow = gauge("allocscope_process_growth_low_bytes_per_second", ofProcess(),
		"Low end of the 95% confidence interval of the growth.", noRate)
	growthHigh = gauge("allocscope_process_growth_high_bytes_per_second", ofProcess(),
		"High end of the 95% confidence interval of the growth.", noRate)
	processVerdict = gauge("allocscope_process_verdict", ofProcess(verdictLabel),
		"1 for the verdict on RSS, 0 for the others.", noVerdict)
	timeToLimit = gauge("allocscope_process_time_to_limit_seconds", ofProcess(),
		"Time until the limit at this rate; +Inf: never.", "it is unknown")

	rowBytes = gauge("allocscope_trace_row_bytes", ofProcess(rowLabel),
		"What RSS was made of at the end of the last trace; the rows sum to RSS.", noTrace)
	componentGrowth = gauge("allocscope_trace_component_growth_bytes_per_second",
		ofProcess(componentLabel),
		"Growth of each component during the last trace: the largest ten, and other.", noTrace)
	traceVerdict = gauge("allocscope_trace_verdict", ofProcess(verdictLabel),
		"1 for the verdict of the last trace, 0 for the others.", noTrace)
	traceTimestamp = gauge("allocscope_trace_timestamp_seconds", ofProcess(),
		"When the last trace ended, in Unix time.", noTrace)
	traceDuration = gauge("allocscope_trace_duration_seconds", ofProcess(),
		"How long the last trace was.", noTrace)
	slowdownRatio = gauge("allocscope_trace_slowdown_ratio", ofProcess(),
		"Share of time by which the probes slowed the process down during the last trace.",
		noTrace+", or its slowdown is unknown")
	ownCPU = gauge("allocscope_trace_own_cpu_cores", ofProcess(),
		"CPU that allocscope itself took during the last trace; 1 is a core.",
		noTrace+", or it is unknown")
	losses = gauge("allocscope_trace_losses", ofProcess(lossLabel),
		"What the last trace did not measure, by its reason.", "nothing of this kind was lost")

	watchedProcesses = gauge("allocscope_watched_processes", nil,
		"Processes that the rules choose, and that allocscope watches.", "")
	ignoredProcesses = gauge("allocscope_ignored_processes", nil,
		"Processes that the rules choose beyond the number that allocscope watches.", "")
	tracesTotal = counter("allocscope_traces_total", []string{outcomeLabel},
		"Traces since the start, by outcome: done, failed, or refused as too soon after the last one.",
		"")
	oomKillsTotal = counter("allocscope_oom_kills_total", nil,
		"Watched processes that the kernel has killed for want of memory since the start, by its log.",
		"")
	folderBytes = gauge("allocscope_folder_bytes", nil,
		"Size of the folders of traces that are kept.", "")
	pushProfiles = counter("allocscope_push_profiles_total", []string{outcomeLabel},
		"Profiles since the start: sent, retried, refused by the server, dropped as the spool "+
			"was full, or damaged on disk.",
		noPush)
	pushWaiting = gauge("allocscope_push_waiting_profiles", nil,
		"Profiles that wait in the spool.", noPush)
	pushWaitingBytes = gauge("allocscope_push_waiting_bytes", nil,
		"Size of the profiles that wait in the spool.", noPush)
	buildInfo = gauge("allocscope_build_info", []string{versionLabel},
		"1, with the version as a label.", "")
)

// classes are all classes of verdicts.
var classes = []verdict.Class{
	verdict.ClassLeak, verdict.ClassSuspected, verdict.ClassGrowing, verdict.ClassFillsUp,
	verdict.ClassSaturating,
	verdict.ClassPlateau, verdict.ClassSpikyPlateau, verdict.ClassTooShort,
	verdict.ClassWrongProcess,
}

// outcomes are all outcomes of traces.
var outcomes = []TraceOutcome{TraceDone, TraceFailed, TraceRefused}
