package report

// pageData has the data that the script of the page draws. Its form is mirrored in
// export/page/web/src/data.ts.
type pageData struct {
	Timeline *timelineData `json:"timeline,omitempty"`
	Flame    *flameData    `json:"flame,omitempty"`
	// GPUFlames are the flame graphs of GPU memory, one for each measure; absent if there is none.
	GPUFlames []gpuFlame `json:"gpu_flames,omitempty"`
}

// timelineData has the curves over time. Each list of values is as long as TimeS; null is a gap.
type timelineData struct {
	// TimeS is the time of each row since the start of the trace, in seconds with three decimals,
	// increasing.
	TimeS []float64 `json:"time_s"`
	// Steps of training at each row, never decreasing; absent where none were counted.
	Steps  []*int64    `json:"steps,omitempty"`
	Series []curve     `json:"series"`
	Phases []phaseBand `json:"phases"`
	// GPUPhases are from the verdict on GPU memory; absent if there is none.
	GPUPhases []phaseBand `json:"gpu_phases,omitempty"`
	Marks     []markLine  `json:"marks"`
	Spikes    []span      `json:"spikes"`
	// Probing has the times when the heap was not probed all the time, with one of summary.Heap… as
	// Kind. Changes are changes of the probes.
	Probing []phaseBand `json:"probing"`
	Changes []markLine  `json:"changes"`
	// BaselineS is the time from which growth counts; absent: unknown.
	BaselineS *float64 `json:"baseline_s,omitempty"`
	Slope     *slope   `json:"slope,omitempty"`
}

// A curve is one line of the chart.
type curve struct {
	// Key is "rss", "private", "pss", "tree" (all processes of the tree), "workers" (their number),
	// "tensors" (their bytes), "pinned", or of GPU memory "gpu_used", "gpu_reserved", "gpu_driver",
	// "gpu_allocated".
	Key   string `json:"key"`
	Label string `json:"label"`
	// Unit is "bytes" or "count".
	Unit string `json:"unit"`
	// Shown at first.
	Shown  bool     `json:"shown"`
	Values []*int64 `json:"values"`
}

// A span of time, in seconds.
type span struct {
	FromS float64 `json:"from_s"`
	ToS   float64 `json:"to_s"`
}

type phaseBand struct {
	span
	// Kind is one of verdict.Phase….
	Kind  string `json:"kind"`
	Label string `json:"label"`
}

type markLine struct {
	AtS  float64 `json:"at_s"`
	Text string  `json:"text"`
}

// A slope is the line of the last segment. It has LevelBytes in the middle of the span, and rises
// by BytesPerS, with the 95% interval from LowBytesPerS to HighBytesPerS.
type slope struct {
	span
	LevelBytes    float64 `json:"level_bytes"`
	BytesPerS     float64 `json:"bytes_per_s"`
	LowBytesPerS  float64 `json:"low_bytes_per_s"`
	HighBytesPerS float64 `json:"high_bytes_per_s"`
	// Label is the rate in words.
	Label string `json:"label"`
}

// flameData is the tree of the stacks that grew, from the outermost frames.
type flameData struct {
	// Names and Components are indexed by the nodes.
	Names      []string `json:"names"`
	Components []string `json:"components"`
	// Root has the name of the whole.
	Root flameNode `json:"root"`
	// Note on the parts left out, in a sentence; empty: nothing is.
	Note string `json:"note,omitempty"`
}

// A gpuFlame is the tree of the stacks that grew on GPUs. Resident is the memory there, in bytes.
type gpuFlame struct {
	Label string `json:"label"`
	flameData
}

// A flameNode is [name, component, resident bytes, objects, [children]]: indexes into Names and
// Components, and inclusive sums. The component is the one with most of its bytes. A node without
// children has no fifth element.
type flameNode struct {
	Name, Component   int
	Resident, Objects int64
	Children          []flameNode
}
