package report

// pageData is what the script of the page draws. Its form is mirrored in export/page/web/src/data.ts.
type pageData struct {
	Timeline *timelineData `json:"timeline,omitempty"`
	Flame    *flameData    `json:"flame,omitempty"`
	// DeviceFlames are those of device memory, by what is counted; absent where there is none.
	GPUFlames []gpuFlame `json:"gpu_flames,omitempty"`
}

// timelineData is the curves over time. All lists of values are as long as TimeS; null is a gap.
type timelineData struct {
	// TimeS is the time of each row since the start of the trace, in seconds with three decimals, increasing.
	TimeS []float64 `json:"time_s"`
	// Steps of training at each row, never decreasing; absent where none were counted.
	Steps  []*int64    `json:"steps,omitempty"`
	Series []curve     `json:"series"`
	Phases []phaseBand `json:"phases"`
	// DevicePhases are those of the verdict on device memory; absent where there is none.
	GPUPhases []phaseBand `json:"gpu_phases,omitempty"`
	Marks     []markLine  `json:"marks"`
	Spikes    []span      `json:"spikes"`
	// Probing is when heap was not probed all the time, its Kind one of export.Heap…, and Changes what was changed in the probes.
	Probing []phaseBand `json:"probing"`
	Changes []markLine  `json:"changes"`
	// BoundaryS is the moment from where on growth is counted; absent: unknown.
	BaselineS *float64 `json:"baseline_s,omitempty"`
	Slope     *slope   `json:"slope,omitempty"`
}

// A curve is one line of the chart.
type curve struct {
	// Key is "rss", "private", "pss", "tree" (all processes of the tree), "workers" (their number), "tensors" (their bytes), "pinned", or of
	// device memory "device_used", "device_reserved", "device_driver", "device_allocated".
	Key   string `json:"key"`
	Label string `json:"label"`
	// Unit is "bytes" or "count".
	Unit string `json:"unit"`
	// Shown at first.
	Shown  bool     `json:"shown"`
	Values []*int64 `json:"values"`
}

// A stretch of time, in seconds.
type span struct {
	FromS float64 `json:"from_s"`
	ToS   float64 `json:"to_s"`
}

type phaseBand struct {
	span
	// Kind is one of growth.Phase….
	Kind  string `json:"kind"`
	Label string `json:"label"`
}

type markLine struct {
	AtS  float64 `json:"at_s"`
	Text string  `json:"text"`
}

// A slope is the line of the last regime: LevelBytes at the middle of the stretch, rising by BytesPerS, between LowBytesPerS and
// HighBytesPerS with 95 %.
type slope struct {
	span
	LevelBytes    float64 `json:"level_bytes"`
	BytesPerS     float64 `json:"bytes_per_s"`
	LowBytesPerS  float64 `json:"low_bytes_per_s"`
	HighBytesPerS float64 `json:"high_bytes_per_s"`
	// Label says the rate in words.
	Label string `json:"label"`
}

// flameData is the tree of what grew, roots outermost.
type flameData struct {
	// Names and Owners are what nodes index.
	Names      []string `json:"names"`
	Components []string `json:"components"`
	// Root's name is that of the whole.
	Root flameNode `json:"root"`
	// Note says what is left out, in a sentence; empty: nothing is.
	Note string `json:"note,omitempty"`
}

// A deviceFlame is the tree of what grew on GPUs. Resident of its nodes are bytes there.
type gpuFlame struct {
	Label string `json:"label"`
	flameData
}

// A flameNode is [name, owner, resident bytes, objects, [children]]: indexes into Names and Owners, and inclusive sums. The owner is the
// one that most of its bytes belong to. A node without children has no fifth entry.
type flameNode struct {
	Name, Component   int
	Resident, Objects int64
	Children          []flameNode
}
