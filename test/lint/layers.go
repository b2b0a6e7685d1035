package main

import (
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/allocscope/allocscope/"

// layers are the packages of the project from the lowest to the highest. A package imports only
// packages of rows above its own here, and of the areas that its area uses.
var layers = [][]string{
	{"bpf", "bpf/internal/shorten", "shim"},

	{"growth/census", "growth/keeper", "growth/outlier", "growth/verdict"},
	{"growth"},
	{"growth/claim", "growth/component", "growth/growthtest"},
	{"growth/breakdown"},
	{"growth/trend"},
	{"growth/diagnosis", "growth/spike"},
	{"growth/advice", "growth/judge"},
	{"growth/gpu"},
	{"growth/conclude"},

	{"docs/reference/schema"},
	{
		"export/chart", "export/exporttest", "export/folder", "export/page", "export/page/origin",
		"export/page/pagetest", "export/rows", "export/series",
	},
	{"export/units"},
	{"export/profile"},
	{"export/gpusnapshot", "export/summary"},
	{"export/words"},
	{"export/bundle", "export/compare", "export/report"},
	{"export/markdown", "export/push"},
	{"export/metrics"},
	{"export/ranks"},

	{"tracer/mem", "tracer/overhead/duty", "tracer/reexec"},
	{"tracer/hostile"},
	{
		"tracer/cpython", "tracer/distribution", "tracer/gpu/nvml", "tracer/numpy",
		"tracer/overhead/calibrate/child",
		"tracer/overhead/controller", "tracer/symbol", "tracer/tracertest", "tracer/uprobe",
	},
	{"tracer/cache", "tracer/oom", "tracer/process"},
	{"tracer/torch"},
	{"tracer/torch/caching"},
	{"tracer/heap"},
	{
		"tracer/heap/glibc", "tracer/heap/heaptest", "tracer/heap/jemalloc", "tracer/heap/mimalloc",
		"tracer/heap/pymalloc",
	},
	{"tracer/heap/allocators"},
	{"tracer/software"},
	{
		"tracer/addrspace", "tracer/container", "tracer/jit", "tracer/probe", "tracer/python", "tracer/residency/region",
		"tracer/tree", "tracer/unwind",
	},
	{"tracer/overhead/calibrate"},
	{"tracer/kernel"},
	{"tracer/source"},
	{"tracer/overhead", "tracer/stack"},
	{"tracer/liveness"},
	{"tracer/estimate"},
	{"tracer/gpu", "tracer/residency"},
	{"tracer/objects/interpreter", "tracer/objects/native", "tracer/objects/sourcecode"},
	{"tracer/objects"},
	{"tracer/objects/worker"},
	{"tracer", "tracer/doctor"},

	{"record"},

	{"fleet/socket"},
	{"fleet/query", "fleet/serve"},
	{"fleet"},

	{
		"cmd/allocscope/cli", "cmd/allocscope/console", "cmd/allocscope/exit",
		"cmd/allocscope/run/child", "cmd/allocscope/user",
	},
	{"cmd/allocscope/flagvalue", "cmd/allocscope/target", "cmd/allocscope/view"},
	{"cmd/allocscope/mark", "cmd/allocscope/pushflags"},
	{"cmd/allocscope/trace"},
	{"cmd/allocscope/demo", "cmd/allocscope/run", "cmd/allocscope/screen"},
	{"cmd/allocscope"},
}

// uses has the areas whose packages the packages of an area import. Areas that are not here are
// free.
var uses = map[string][]string{
	"bpf":    {"bpf"},
	"shim":   {"shim"},
	"growth": {"growth"},
	"export": {"export", "growth", "docs"},
	"tracer": {"tracer", "growth", "bpf", "shim"},
	"fleet":  {"fleet", "tracer", "export", "growth"},
	"record": {"record", "tracer", "export", "growth"},
	"cmd":    {"cmd", "fleet", "record", "tracer", "export", "growth", "shim"},
}

// A denial is a package that some packages must not import, with those below it.
type denial struct {
	pkg     string
	denied  func(importer string) bool
	because string
}

// denials are of packages outside the project.
var denials = []denial{
	{"github.com/cilium/ebpf", in("growth", "export", "shim"), "it knows no kernel"},
	{"github.com/google/pprof", in("growth", "tracer", "bpf"), "it knows no file format, pprof's"},
	{"log/slog", in("growth", "export", "tracer", "bpf", "shim", "record", "fleet"), "only cmd logs"},
	{"os", in("growth"), "growth does no I/O"},
	{"github.com/spf13", in("record"), "record knows no flag"},
	{nvml, isNotNVML, "only tracer/gpu/nvml calls NVML"},
}

// nvml is the module whose rule is for tests, too.
const nvml = "github.com/NVIDIA/go-nvml"

func isNotNVML(importer string) bool { return importer != "tracer/gpu/nvml" }

func in(areas ...string) func(string) bool {
	return func(importer string) bool { return slices.Contains(areas, areaOf(importer)) }
}

func areaOf(pkg string) string {
	area, _, _ := strings.Cut(pkg, "/")
	return area
}

// importsOf has the imports of packages by their folders, for every build tag and architecture. From
// tests it takes the imports of NVML alone.
type importsOf map[string]map[string]bool

func (i importsOf) add(s source) error {
	if s.extension() != ".go" {
		return nil
	}
	isTest := strings.HasSuffix(s.path, "_test.go")
	file, err := parser.ParseFile(token.NewFileSet(), s.path, s.text, parser.ImportsOnly)
	if err != nil {
		return err
	}

	pkg := path.Dir(s.path)
	if i[pkg] == nil {
		i[pkg] = make(map[string]bool)
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if !isTest || strings.HasPrefix(imported, nvml) {
			i[pkg][imported] = true
		}
	}
	return nil
}

// faults returns a line for each import that must not be.
func (i importsOf) faults() (faults []string) {
	layerOf := make(map[string]int)
	for layer, packages := range layers {
		for _, pkg := range packages {
			layerOf[pkg] = layer
		}
	}

	for _, pkg := range slices.Sorted(maps.Keys(i)) {
		layer, listed := layerOf[pkg]
		if uses[areaOf(pkg)] != nil && !listed {
			faults = append(faults, pkg+" is in no layer: add it to test/lint/layers.go")
			continue
		}

		for _, imported := range slices.Sorted(maps.Keys(i[pkg])) {
			because := denialOf(pkg, imported)
			inner, isOurs := strings.CutPrefix(imported, module)
			if isOurs && listed {
				because = cmp.Or(because, orderFault(pkg, layer, inner, layerOf))
			}
			if because != "" {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", pkg, imported, because))
			}
		}
	}
	return faults
}

// denialOf returns why a package must not import one from outside the project, or "".
func denialOf(pkg, imported string) string {
	for _, d := range denials {
		below := imported == d.pkg || strings.HasPrefix(imported, d.pkg+"/")
		if below && d.denied(pkg) {
			return d.because
		}
	}
	return ""
}

// orderFault returns why a package of a layer must not import another one, or "".
func orderFault(pkg string, layer int, imported string, layerOf map[string]int) string {
	allowed := uses[areaOf(pkg)]
	if !slices.Contains(allowed, areaOf(imported)) {
		return fmt.Sprintf("%s uses only %s", areaOf(pkg), strings.Join(allowed, ", "))
	}
	if below, listed := layerOf[imported]; !listed || below >= layer {
		return "it is not below it in test/lint/layers.go"
	}
	return ""
}
