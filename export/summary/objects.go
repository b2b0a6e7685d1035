package summary

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/census"
)

// Objects are the objects of the main process by type, as censuses counted them.
type Objects struct {
	// Python is the version of the interpreter, such as "3.11".
	Python string `json:"python"`
	// BeforeS and AfterS are the times of the two censuses; BeforeS is absent where there was one.
	BeforeS *float64 `json:"before_s,omitempty"`
	AfterS  float64  `json:"after_s"`
	// Share of the small-object memory that was read by the census that read less; 1: the counts
	// are exact but for changes meanwhile.
	Share float64 `json:"share"`
	// Types that grow, those that gained most bytes first: the first 50.
	Types []TypeGrowth `json:"types"`
	// Largest are the types with most bytes at the end: the first 50.
	Largest []TypeCount `json:"largest"`
	// Blocks is the number of live blocks of pymalloc at the end. UntypedBlocks are the blocks
	// without an object: tables of containers and buffers.
	Blocks        int64 `json:"blocks"`
	UntypedBlocks int64 `json:"untyped_blocks"`
	UntypedBytes  int64 `json:"untyped_bytes"`
	// Tensors are the distinct storages of PyTorch's tensors at the end by dtype, shape and device:
	// the 50 that gained most bytes, then had most bytes.
	Tensors []TensorGroup `json:"tensors"`
	// TensorsUnknown is why the tensors are not known; absent: they are.
	TensorsUnknown census.TensorsUnknown `json:"tensors_unknown,omitempty"`
	census.TensorLimits
	// InCPPOnlyBytes are CPU storages to which no tensor of Python refers, such as tensors that
	// autograd has saved: of the allocations since tracing started, estimated from the sampled
	// ones; absent where it is unknown. InCPPOnlyGrowthBytes is their growth since the first
	// census.
	InCPPOnlyBytes       *int64 `json:"in_cpp_only_bytes,omitempty"`
	InCPPOnlyGrowthBytes *int64 `json:"in_cpp_only_growth_bytes,omitempty"`
	// Missing is the part of the objects that is not counted; absent: none.
	Missing census.Missing `json:"missing,omitempty"`
	// Inconsistent is the number of pools that changed while they were read, and are left out.
	Inconsistent int `json:"inconsistent"`
	// OwnS is the CPU time of reading and counting the objects, in both censuses, and ReadBytes the
	// number of bytes read. Listing the memory and recognising bulk data are in neither.
	OwnS      float64 `json:"own_s"`
	ReadBytes int64   `json:"read_bytes"`
}

// Nearest is the type that grows and that a user knows best; empty: none grows.
func (o *Objects) Nearest() string {
	var grown []census.TypeGrowth
	for _, t := range o.Types {
		grown = append(grown, census.TypeGrowth{Type: t.Type, PerMinute: t.PerMin})
	}
	if len(grown) == 0 {
		return ""
	}
	return census.Nearest(grown)[0].Type
}

// A TypeGrowth is how the objects of a type became more.
type TypeGrowth struct {
	// Type is its name with its module.
	Type string `json:"type"`
	// Before and After are the numbers of objects. Bytes is the difference in bytes.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	Bytes  int64 `json:"bytes"`
	// PerMin is the growth of the number, and LowPerMin and HighPerMin its 95% interval by the
	// sampling of pools.
	PerMin     float64 `json:"per_min"`
	LowPerMin  float64 `json:"low_per_min"`
	HighPerMin float64 `json:"high_per_min"`
}

// A TypeCount is the objects of a type.
type TypeCount struct {
	// Type is its name with its module.
	Type string `json:"type"`
	// Count and Bytes of the objects, the tables that they own included.
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
	// Margin is half the width of the 95% interval of Count; 0: it is exact.
	Margin int64 `json:"margin"`
}

// A TensorGroup is the storages of the tensors of one dtype, shape and device.
type TensorGroup struct {
	DType string `json:"dtype"`
	// Shape of the largest tensor on each storage; empty of a scalar.
	Shape  []int64 `json:"shape"`
	Device string  `json:"device"`
	// Storages is the number of distinct storages. Tensors is the number of Python objects that
	// refer to them, which is larger where some are views.
	Storages int `json:"storages"`
	Tensors  int `json:"tensors"`
	// WithGradFn is the number of Tensors that keep the autograd graph that computed them.
	WithGradFn int `json:"with_grad_fn"`
	// Bytes of the storages. GrowthBytes and GrowthTensors are their growth and the growth of
	// Tensors since the first census; absent where there was one.
	Bytes         int64  `json:"bytes"`
	GrowthBytes   *int64 `json:"growth_bytes,omitempty"`
	GrowthTensors *int   `json:"growth_tensors,omitempty"`
	// StackID is the stack that allocated most of them, as in Accumulation.StackIDs; absent where
	// it is unknown.
	StackID string `json:"stack_id,omitempty"`
}

// maxTypes bounds the lists of types and of tensors.
const maxTypes = 50

// ObjectsOf converts two censuses of a process. after is nil where there was none: then nil is
// returned. before is nil where there was one only.
func ObjectsOf(before, after *census.Result) *Objects {
	if after == nil {
		return nil
	}

	out := &Objects{
		Python: units.Name(after.Python), AfterS: Seconds(after.Elapsed), Share: after.Share,
		Types: []TypeGrowth{}, Largest: []TypeCount{}, Tensors: []TensorGroup{},
		Blocks: units.Round(after.Blocks), UntypedBlocks: units.Round(after.Untyped),
		UntypedBytes:   units.Round(after.UntypedBytes),
		TensorsUnknown: after.Tensors.Unknown, TensorLimits: after.Tensors.TensorLimits,
		Missing:      after.Missing,
		Inconsistent: after.Inconsistent, OwnS: Seconds(after.Took), ReadBytes: after.ReadBytes,
	}
	if after.Tensors.InCPPOnly >= 0 && after.Tensors.Unknown == "" {
		out.InCPPOnlyBytes = &after.Tensors.InCPPOnly
	}
	for _, t := range after.Types[:min(maxTypes, len(after.Types))] {
		out.Largest = append(out.Largest, TypeCount{
			Type: units.Name(t.Type), Count: units.Round(t.Count), Bytes: units.Round(t.Bytes),
			Margin: units.Round(math.Ceil(t.Margin)),
		})
	}
	out.addTensors(before, after)
	if before == nil {
		return out
	}

	out.BeforeS = new(Seconds(before.Elapsed))
	out.Share = min(out.Share, before.Share)
	out.OwnS += Seconds(before.Took)
	out.ReadBytes += before.ReadBytes
	out.Inconsistent += before.Inconsistent
	grown := census.Grown(before, after)
	for _, t := range grown[:min(maxTypes, len(grown))] {
		out.Types = append(out.Types, TypeGrowth{
			Type: units.Name(t.Type), Before: units.Round(t.Before), After: units.Round(t.After),
			Bytes: units.Round(t.Bytes), PerMin: t.PerMinute, LowPerMin: t.Low, HighPerMin: t.High,
		})
	}
	return out
}

// addTensors adds the storages of after, with their growth since before.
func (o *Objects) addTensors(before, after *census.Result) {
	old := make(map[string]census.TensorGroup)
	isKnown := before != nil && before.Tensors.Unknown == ""
	if isKnown {
		for _, g := range before.Tensors.Groups {
			old[tensorKey(g)] = g
		}
		if before.Tensors.InCPPOnly >= 0 && o.InCPPOnlyBytes != nil {
			o.InCPPOnlyGrowthBytes = new(after.Tensors.InCPPOnly - before.Tensors.InCPPOnly)
		}
	}

	for _, g := range after.Tensors.Groups {
		group := TensorGroup{
			DType: units.Name(g.DType), Shape: list(g.Shape), Device: units.Name(g.Device),
			Storages: g.Storages, Tensors: g.Tensors, WithGradFn: g.WithGradFn, Bytes: g.Bytes,
			StackID: stackID(g.Stack),
		}
		if isKnown {
			was := old[tensorKey(g)]
			group.GrowthBytes, group.GrowthTensors = new(g.Bytes-was.Bytes), new(g.Tensors-was.Tensors)
		}
		o.Tensors = append(o.Tensors, group)
	}
	slices.SortStableFunc(o.Tensors, func(a, b TensorGroup) int {
		return cmp.Or(cmp.Compare(b.gained(), a.gained()), cmp.Compare(b.Bytes, a.Bytes))
	})
	o.Tensors = o.Tensors[:min(maxTypes, len(o.Tensors))]
}

// gained returns the bytes by which a group has grown; 0: by none, or that is not known.
func (g TensorGroup) gained() int64 {
	if g.GrowthBytes == nil {
		return 0
	}
	return max(0, *g.GrowthBytes)
}

// tensorKey is the same for groups of one dtype, shape and device.
func tensorKey(g census.TensorGroup) string {
	key := g.DType + "\x00" + g.Device
	for _, n := range g.Shape {
		key += "," + strconv.FormatInt(n, 10)
	}
	return key
}

// maxStackIDs bounds the IDs of a suspect, and of stacks with one text.
const maxStackIDs = 64

// stackIDs writes the IDs of stacks, without those that have none.
func stackIDs(ids []uint64) []string {
	var texts []string
	for _, id := range ids {
		if id != 0 && len(texts) < maxStackIDs {
			texts = append(texts, stackID(id))
		}
	}
	return texts
}

// stackID writes the ID of a stack, which scripts could not hold as a number; empty: 0, there is
// none.
func stackID(id uint64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatUint(id, 16)
}
