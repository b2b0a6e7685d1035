package words

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
)

// AtGPULimit is the event at the limit of GPU memory. If there are several GPUs, it is about the
// one with the least headroom.
const AtGPULimit = "out of GPU memory"

// GPULines describes a verdict on GPU memory: its headline, its consequences, the curves, the
// advice, and the reason why NVML's count is unknown, if it is.
func GPULines(g summary.GPUMemory) []string {
	lines := VerdictLines(g.Verdict, AtGPULimit)
	lines[0] = GPUHeadline(g)

	if curves := gpuCurves(g); curves != "" {
		lines = append(lines, curves)
	}

	lines = append(lines, GPUAdvice(&g))
	if unknown := GPUCountUnknown(g); unknown != "" {
		lines = append(lines, unknown)
	}

	return lines
}

// GPUCountUnknown is why NVML's count is unknown. It is empty where the count is known.
func GPUCountUnknown(g summary.GPUMemory) string {
	if g.Reason == "" {
		return ""
	}
	return "NVML's count is unknown: " + gpuUnknown(g.GPUUnknown)
}

var gpuReasons = map[growth.GPUReason]string{
	growth.GPUNotBuilt:     "this static build has no NVML",
	growth.GPUNoLibrary:    "there is no libnvidia-ml.so.1",
	growth.GPUBadLibrary:   "libnvidia-ml.so.1 cannot be used",
	growth.GPUNoDriver:     "the NVIDIA driver is not loaded",
	growth.GPUMismatch:     "libnvidia-ml.so.1 and the NVIDIA driver are of different versions",
	growth.GPUNoPermission: "no permission",
	growth.GPUUnknownPID: "NVML lists PIDs of the host, and this process's is not known " +
		"before its first call of CUDA since tracing started",
	growth.GPUWithoutMemory: "NVML lists the process without its memory",
	growth.GPUNotListed:     "NVML does not list the process",
}

// gpuRemedies are what to do, where that depends on nothing but the reason.
var gpuRemedies = map[growth.GPUReason]string{
	growth.GPUNotBuilt: "install a build for glibc: .deb, .rpm, .tar.gz without -static, or pip; " +
		"from source: install gcc",
	growth.GPUNoLibrary:    "there is an NVIDIA GPU: install its driver",
	growth.GPUBadLibrary:   "see what nvidia-smi reports",
	growth.GPUNoDriver:     "there is an NVIDIA GPU: modprobe nvidia; dmesg shows why it does not load",
	growth.GPUMismatch:     "the driver was updated: reboot, or load its new modules",
	growth.GPUNoPermission: "run as root; in a container, give it the GPUs' device files",
}

// gpuUnknown is why NVML's count is unknown, and what to do about it.
func gpuUnknown(why growth.GPUUnknown) string {
	text, remedy := cmp.Or(gpuReasons[why.Reason], string(why.Reason)), gpuRemedies[why.Reason]

	switch why.Reason {
	case growth.GPUOther:
		text = why.Detail
	case growth.GPUNoAnswer:
		waited := time.Duration(why.Waited * float64(time.Second))
		text = fmt.Sprintf("NVML has not answered within %v", waited)
	case growth.GPUBadLibrary:
		text += ": " + why.Detail
	case growth.GPUNoLibrary, growth.GPUNotBuilt, growth.GPUNoDriver:
		if why.NVIDIA == "" {
			text, remedy = "no NVIDIA GPU on this machine: "+text, ""
		} else if why.Reason == growth.GPUNoLibrary && why.NVIDIA == growth.NVIDIADriver {
			remedy = "install the library of the driver's version, such as Debian's libnvidia-ml1; " +
				"in a container: NVIDIA_DRIVER_CAPABILITIES=utility,compute"
		}
	}

	return text + inParentheses(remedy)
}

// GPUHeadline is the verdict in one sentence, and the curve that it judges.
func GPUHeadline(g summary.GPUMemory) string {
	curve := CurveText(g.Judged)
	if g.Judged == summary.GPUAllocated { // blocks come and go within a training step
		curve += ", between steps"
	}
	return Headline(g.Verdict) + " (" + curve + ")"
}

var curveTexts = map[string]string{
	summary.GPUUsed:      "as NVML counts",
	summary.GPUReserved:  "reserved by torch",
	summary.GPUAllocated: "allocated by torch",
	summary.GPUDriver:    "CUDA driver API",
}

// CurveText describes a curve of GPU memory, by one of the constants summary.GPU….
func CurveText(name string) string { return cmp.Or(curveTexts[name], name) }

// gpuCurves is one line about all curves: "used 12.0 GiB → 13.0 GiB (+1.00 GiB/min, leak)".
func gpuCurves(g summary.GPUMemory) string {
	var texts []string
	for _, c := range g.Curves {
		if c.StartBytes == nil || c.EndBytes == nil {
			continue
		}

		text := fmt.Sprintf("%s %s → %s (", c.Name,
			units.Bytes(float64(*c.StartBytes)), units.Bytes(float64(*c.EndBytes)))
		if c.BytesPerMin != nil {
			text += units.Signed(float64(*c.BytesPerMin)) + "/min, "
		}

		texts = append(texts, text+ClassText(c.Class)+")")
	}

	return strings.Join(texts, ", ")
}

// ClassText is Name of a class in lower case, for a table: "stable with spikes", "growing". It is
// empty where there is none.
func ClassText(class verdict.Class) string {
	name := Name(summary.Verdict{Class: class})
	if name == Name(summary.Verdict{}) && class != verdict.ClassTooShort {
		return string(class) // of another version
	}
	name, _, _ = strings.Cut(strings.ToLower(name), " (")
	return strings.TrimSuffix(name, "?")
}

var gpuKindTexts = map[growth.Kind]string{
	growth.KindCudaBlock:         "torch's blocks",
	growth.KindCudaBeforeTracing: "torch's blocks from before tracing started",
	growth.KindCudaCached:        "reserved by PyTorch, not allocated",
	growth.KindCudaPinned:        "reserved by PyTorch, free beside blocks in use",
	growth.KindCudaReturnable:    "reserved by PyTorch, free: empty_cache() returns it",
	growth.KindCudaPools:         "reserved by PyTorch, free in private pools",
	growth.KindCudaSegment:       "other allocations of the driver API",
	growth.KindNotAttributed:     "not attributed: CUDA context, modules, unseen allocations",
}

// GPURow describes a row of the GPU memory breakdown: "torch's blocks: forward (model.py:31),
// GPU 0". The GPU is named where there are several.
func GPURow(row summary.GPUBreakdownRow, several bool) string {
	text := cmp.Or(gpuKindTexts[row.Kind], string(row.Kind))
	switch {
	case row.Function != "":
		text += ": " + Frame(row.Function)
	case row.Kind == growth.KindCudaBlock || row.Kind == growth.KindCudaSegment:
		text += ", allocation site unknown"
	}

	if several && row.GPU != "" {
		text = fmt.Sprintf("%s, GPU %s", text, row.GPU)
	}

	return text
}

// A GPUSum is how much one kind of memory a process uses on a GPU, in bytes.
type GPUSum struct {
	Kind growth.Kind
	// GPU is the CUDA device index in the process. It is empty where the GPU is unknown, and for
	// the sum over all GPUs.
	GPU        string
	Start, End float64
}

// Delta is the change from the baseline to the end.
func (s GPUSum) Delta() float64 { return s.End - s.Start }

// Label describes the kind, and the GPU if there is one.
func (s GPUSum) Label() string {
	text := cmp.Or(gpuKindTexts[s.Kind], string(s.Kind))
	if s.GPU != "" {
		text += ", GPU " + s.GPU
	}
	return text
}

// GPUSums sums the GPU memory breakdown by kind, and by GPU where it names several. The largest
// change comes first, and the memory that is not attributed last. all is the sum of everything.
func GPUSums(g summary.GPUMemory) (sums []GPUSum, all GPUSum) {
	several := HasSeveralGPUs(g.Breakdown)
	for _, r := range g.Breakdown {
		if !several {
			r.GPU = ""
		}

		isSame := func(s GPUSum) bool { return s.Kind == r.Kind && s.GPU == r.GPU }

		i := slices.IndexFunc(sums, isSame)
		if i < 0 {
			i = len(sums)
			sums = append(sums, GPUSum{Kind: r.Kind, GPU: r.GPU})
		}

		for _, s := range []*GPUSum{&sums[i], &all} {
			s.Start += float64(r.StartBytes)
			s.End += float64(r.EndBytes)
		}
	}

	slices.SortStableFunc(sums, func(a, b GPUSum) int {
		return cmp.Or(
			RemainderLast(a.Kind, b.Kind),
			cmp.Compare(math.Abs(b.Delta()), math.Abs(a.Delta())),
			cmp.Compare(b.End, a.End),
		)
	})

	return sums, all
}

// RemainderLast compares two kinds: memory that is not attributed comes after all others.
func RemainderLast(a, b growth.Kind) int {
	switch rest := growth.KindNotAttributed; {
	case a == rest && b != rest:
		return 1
	case a != rest && b == rest:
		return -1
	}
	return 0
}

// HasSeveralGPUs reports whether the rows name more than one GPU.
func HasSeveralGPUs(rows []summary.GPUBreakdownRow) bool {
	gpu := ""
	for _, r := range rows {
		if r.GPU != "" && gpu != "" && r.GPU != gpu {
			return true
		}
		gpu = cmp.Or(r.GPU, gpu)
	}

	return false
}

// GPUTotalLabel describes the sum of the GPU memory breakdown.
func GPUTotalLabel(g summary.GPUMemory) string {
	isUsed := func(c summary.GPUCurve) bool { return c.Name == summary.GPUUsed }
	if slices.ContainsFunc(g.Curves, isUsed) {
		return "used, as NVML counts"
	}
	return "all that is known"
}

// GPUAdvice is the meaning of the diagnosis of GPU memory and a remedy, with the numbers that show
// it, in a sentence. It is never empty.
func GPUAdvice(g *summary.GPUMemory) string { return units.Name(gpuAdvice(g)) }

func gpuAdvice(g *summary.GPUMemory) string {
	switch gpu.Diagnosis(g.Diagnosis) {
	case gpu.DiagnosisTensors:
		return fmt.Sprintf(
			"torch's blocks between steps grow%s: tensors are kept%s. Look for losses, "+
				"outputs or states that are collected with their graph: keep .item() or "+
				".detach().cpu() of them",
			gpuRate(g, summary.GPUAllocated),
			gpuSuspect(g),
		)
	case gpu.DiagnosisFragmentation, gpu.DiagnosisPools, gpu.DiagnosisCache, gpu.DiagnosisCacheGrows:
		return fmt.Sprintf("torch's segments grow%s, and its blocks %s: %s",
			gpuRate(g, summary.GPUReserved), gpuBlocks(g), gpuCacheAdvice(g))
	case gpu.DiagnosisDriver:
		return fmt.Sprintf(
			"memory from the driver grows%s, faster than torch's segments: something "+
				"else allocates%s, as NCCL and extensions do",
			gpuRate(g, summary.GPUDriver),
			gpuSuspect(g),
		)
	case gpu.DiagnosisContext:
		return gpuContext(g)
	case gpu.DiagnosisWarmup:
		return "the growth slows down: caches, workspaces and optimizer state are still being allocated"
	case gpu.DiagnosisNone:
		return "nothing on the GPU grows"
	}
	return "too early to tell whether anything on the GPU grows: watch longer"
}

// gpuContext is about memory that NVML counts beyond all traced allocations.
func gpuContext(g *summary.GPUMemory) string {
	if curveOf(g, summary.GPUDriver) == nil {
		return fmt.Sprintf("NVML's count grows%s, faster than torch's segments. Calls of the CUDA "+
			"driver API were not traced, so it may be NCCL, an extension, the context or "+
			"modules: trace with source cuda", gpuRate(g, summary.GPUUsed))
	}
	return fmt.Sprintf("NVML's count grows%s, faster than the driver's traced allocations: its "+
		"context, modules of kernels that are loaded or compiled repeatedly, memory for "+
		"printf and local variables, or memory that another process allocates in its name",
		gpuRate(g, summary.GPUUsed))
}

// gpuRate is how fast a curve grows.
func gpuRate(g *summary.GPUMemory, name string) string {
	curve := curveOf(g, name)
	if curve == nil || curve.BytesPerMin == nil {
		return ""
	}
	return " by " + units.Bytes(float64(*curve.BytesPerMin)) + "/min"
}

func gpuBlocks(g *summary.GPUMemory) string {
	switch curve := curveOf(g, summary.GPUAllocated); {
	case curve == nil || curve.Class == verdict.ClassTooShort:
		return "are not seen to"
	case curve.Class.Rises():
		return "less," + gpuRate(g, summary.GPUAllocated)
	}
	return "do not"
}

// lineOfFile ends a frame whose line is known.
var lineOfFile = regexp.MustCompile(`:[0-9]+\)$`)

// gpuSuspect is the suspect with most of the growth, if there is one.
func gpuSuspect(g *summary.GPUMemory) string {
	if len(g.Suspects) == 0 {
		return ""
	}
	s := &g.Suspects[0]
	place := s.Function
	if at := strings.LastIndex(place, " ("); at >= 0 && !lineOfFile.MatchString(place) {
		place = place[:at]
	}
	return fmt.Sprintf(", most by %s: %s", s.Component, place)
}

// curveOf is a curve by its name; nil: it is not known.
func curveOf(g *summary.GPUMemory, name string) *summary.GPUCurve {
	i := slices.IndexFunc(g.Curves, func(c summary.GPUCurve) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &g.Curves[i]
}

var gpuWho = map[gpu.Diagnosis]string{
	gpu.DiagnosisTensors:       "tensors that are kept: what PyTorch has allocated grows between steps",
	gpu.DiagnosisCacheGrows:    "PyTorch's cache: it reserves more, and allocates no more",
	gpu.DiagnosisFragmentation: "PyTorch's cache is fragmented: free memory between blocks in use grows",
	gpu.DiagnosisPools:         "private pools of PyTorch's cache: free memory in CUDA graphs' pools grows",
	gpu.DiagnosisCache:         "PyTorch's cache: free memory that empty_cache() would return grows",
	gpu.DiagnosisDriver:        "memory from the CUDA driver that is not PyTorch's, as of NCCL and extensions",
	gpu.DiagnosisContext:       "memory that only NVML counts: the CUDA context, modules of kernels",
}

// gpuResultOf returns the result where GPU memory grows.
func gpuResultOf(s *summary.Summary, g *summary.GPUMemory, place Place) Result {
	r := Result{
		Name: "GPU " + Name(g.Verdict), Class: g.Class,
		Subject: subjectOf(s, strconv.Itoa(g.Process)),
	}

	who := []string{gpuWho[gpu.Diagnosis(g.Diagnosis)]}
	if lines := gpuCacheLines(g); gpu.Diagnosis(g.Diagnosis).IsOfCache() && lines != nil {
		who = append(who, lines[0])
	}
	r.add(LabelWho, who)
	kept := s.TensorKeeper(g)
	site := pinnerLines(g)
	if len(g.Suspects) > 0 && site == nil {
		site = siteLines(g.Suspects[0], missingPython(s))
	}
	r.add(LabelWhere, withKeeper(site, KeptBy(kept, ResultWidth-labelWidth)))
	pace := Pace(g.Verdict) + " (" + CurveText(g.Judged) + ")"
	limit := LimitLine(g.Verdict, AtGPULimit)
	r.add(LabelHowFast, []string{pace, limit})
	r.add(LabelHowSure, Certainty(g.Verdict))
	r.add(LabelDoNext, nextLines(s, place))

	var notes []string
	if unknown := GPUCountUnknown(*g); unknown != "" {
		notes = append(notes, unknown)
	}
	notes = append(notes, noteLines(s, place)...)
	r.add(LabelNote, append(notes, "RSS: "+Headline(s.Verdict)))
	return r
}
