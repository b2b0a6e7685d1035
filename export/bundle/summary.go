package bundle

import (
	_ "embed"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
)

// A textRule replaces private names in a text of one sort.
type textRule func(n *pseudonyms, text string) string

// fieldRules are the fields of documents whose texts are no codes, by their type and name. A text
// that is neither listed nor a code is left out, and fails TestEveryField.
var fieldRules = map[string]textRule{
	"Summary.Schema":            kept,
	"Summary.Version":           kept,
	"Summary.Kernel":            kept,
	"Summary.Architecture":      kept,
	"Summary.Files":             codeOf(traceFiles),
	"Software.Python":           matching(pythonVersion),
	"Software.Torch":            matching(torchVersion),
	"Software.Libc":             matching(libcVersion),
	"Software.Malloc":           codeOf(mallocs),
	"Source.Name":               codeOf(sources),
	"Source.File":               (*pseudonyms).path,
	"Source.Detail":             dropped,
	"Source.Errno":              codeOf(errnoNames()),
	"Source.Producers":          (*pseudonyms).path,
	"Selection.Command":         (*pseudonyms).argument,
	"Selection.Traced":          (*pseudonyms).argument,
	"Allocator.Name":            codeOf(mallocs),
	"Allocator.File":            (*pseudonyms).path,
	"OverheadChange.Source":     codeOf(sources),
	"OverheadChange.Error":      named("text"),
	"Step.Library":              (*pseudonyms).path,
	"Process.Command":           (*pseudonyms).command,
	"Process.Executable":        (*pseudonyms).path,
	"TreeProcess.Command":       (*pseudonyms).command,
	"Group.Service":             (*pseudonyms).command,
	"Related.Command":           (*pseudonyms).command,
	"Outside.Path":              (*pseudonyms).path,
	"Outside.Largest":           (*pseudonyms).path,
	"ContainerRow.Name":         (*pseudonyms).command,
	"ContainerRow.File":         (*pseudonyms).path,
	"OtherGrowth.Command":       (*pseudonyms).command,
	"GPUMemory.Command":         (*pseudonyms).command,
	"GPUMemory.Detail":          dropped,
	"Objects.Python":            matching(pythonVersion),
	"OOMKill.Command":           (*pseudonyms).command,
	"OOMKill.Cgroup":            named("cgroup"),
	"OOMKill.Own":               named("cgroup"),
	"OOMTask.Command":           (*pseudonyms).command,
	"Target.BootID":             named("boot"),
	"Continued.Folder":          named("trace"),
	"Mark.Text":                 (*pseudonyms).mark,
	"Accumulation.Module":       (*pseudonyms).path,
	"Accumulation.Component":    (*pseudonyms).component,
	"Accumulation.Untrackable":  named("text"),
	"Accumulation.Function":     (*pseudonyms).frame,
	"Accumulation.Stack":        (*pseudonyms).frame,
	"Accumulation.StackIDs":     kept,
	"Suspect.StackIDs":          kept,
	"TensorGroup.StackID":       kept,
	"Keeper.StackID":            kept,
	"Suspect.Component":         (*pseudonyms).component,
	"Suspect.Function":          (*pseudonyms).frame,
	"Suspect.Path":              (*pseudonyms).frame,
	"Suspect.Callers":           (*pseudonyms).frame,
	"Suspect.CommonCaller":      (*pseudonyms).frame,
	"BreakdownRow.Name":         (*pseudonyms).rowName,
	"BreakdownRow.File":         (*pseudonyms).path,
	"BreakdownRow.Site":         (*pseudonyms).frame,
	"GPUCachePool.GPU":          number,
	"GPUCacheCounts.GPU":        number,
	"GPUPinner.GPU":             number,
	"GPUPinner.DType":           (*pseudonyms).dtype,
	"GPUPinner.Function":        (*pseudonyms).rowName,
	"GPUPinner.Component":       (*pseudonyms).component,
	"GPUBreakdownRow.GPU":       number,
	"GPUBreakdownRow.Function":  (*pseudonyms).rowName,
	"GPUBreakdownRow.Component": (*pseudonyms).component,
	"GPU.UUID":                  named("gpu"),
	"GPU.Name":                  kept,
	"Identity.Job":              named("job"),
	"Identity.RunID":            named("job"),
	"Identity.SlurmJob":         named("job"),
	"Identity.Node":             named("host"),
	"Identity.Pod":              named("pod"),
	"Identity.Container":        named("container"),
	"TypeGrowth.Type":           (*pseudonyms).typeName,
	"TypeCount.Type":            (*pseudonyms).typeName,
	"Keeper.Type":               (*pseudonyms).typeName,
	"Link.Type":                 (*pseudonyms).typeName,
	"Keeper.Runtime":            codeOf(runtimes),
	"Limitation.File":           (*pseudonyms).path,
	"Limitation.Package":        (*pseudonyms).component,
	"Lost.Type":                 (*pseudonyms).typeName,
	"Lost.Library":              (*pseudonyms).component,
	"Lost.Function":             named("function"),
	"Lost.Caller":               named("function"),
	"TensorGroup.DType":         (*pseudonyms).dtype,
	"TensorGroup.Device":        matching(devices),
	"Root.Module":               (*pseudonyms).module,
	"Root.File":                 (*pseudonyms).path,
	"Root.Owner":                kept, // variables replaces these
	"Root.Name":                 kept,
	"Link.Name":                 kept,
	"Link.Names":                kept,

	"Report.Schema":  kept,
	"Report.Command": dropped, // doctor's sentences have paths and names of the machine
	"Result.Name":    kept,
	"Result.Finding": dropped,
	"Result.Remedy":  dropped,
}

var (
	traceFiles = set(strings.Join([]string{
		folder.GrowthFile, folder.WarmupFile, folder.PlateauFile, folder.SpikesFile,
		folder.TimelineFile, folder.ProcessesFile, folder.GPUsFile, folder.ObjectsFile,
		"growth warmup plateau spikes timeline processes gpus objects",
	}, " "))
	sources = set("heap mapping fault python tensor cuda step breakdown")
	mallocs = set("glibc jemalloc mimalloc tcmalloc musl")
	// runtimes are named in tracer/objects/native.
	runtimes = set("V8 Java ART .NET JavaScriptCore SpiderMonkey Hermes LuaJIT Racket Chez " +
		"SBCL Perl Ruby PHP Lua")

	pythonVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*t?$`)
	torchVersion  = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*((a|b|rc|\.dev)[0-9]+)?(\+(cpu|cu[0-9]+|rocm[0-9.]+|xpu))?$`)
	libcVersion   = regexp.MustCompile(`^(glibc|musl)( [0-9]+(\.[0-9]+)*)?$`)
	devices       = regexp.MustCompile(`^(cpu|cuda|meta|mps|xpu|hpu)(:[0-9]+)?$`)
)

// errnoNames are the names of the errors of the kernel.
func errnoNames() map[string]bool {
	names := make(map[string]bool)
	for errno := range syscall.Errno(4096) {
		names[unix.ErrnoName(errno)] = true
	}
	return names
}

func dropped(*pseudonyms, string) string { return "" }

// matching keeps texts of one form.
func matching(form *regexp.Regexp) textRule {
	return func(n *pseudonyms, text string) string {
		if form.MatchString(text) {
			return text
		}
		return n.replace("code", text)
	}
}

func kept(_ *pseudonyms, text string) string { return text }

func named(kind string) textRule {
	return func(n *pseudonyms, text string) string { return n.replace(kind, text) }
}

var dtypes = regexp.MustCompile(`^(q?u?int|b?float|complex|bool|bits)[0-9]*([x_][a-z0-9]+)?$`)

// dtype returns the dtype of a tensor.
func (n *pseudonyms) dtype(text string) string {
	if dtypes.MatchString(strings.TrimPrefix(text, "torch.")) {
		return text
	}

	return n.typeName(text)
}

// module returns the name of a Python module, or the path of a file with static variables.
func (n *pseudonyms) module(text string) string {
	if len(text) > 0 && (text[0] == '/' || text[0] == '[') {
		return n.path(text)
	}

	if n.isPackage(topOf(text)) && !n.isHidden(text) {
		n.keep(text)
		return text
	}

	return n.typeName(text)
}

// markWords are those by which growth.EpochsOf reads a mark.
var markWords = set(`epoch val valid validate validation eval evaluate evaluation start begin end`)

// mark keeps the part of a mark that has a meaning for the verdict.
func (n *pseudonyms) mark(text string) string {
	if replaced, ok := n.pseudonyms[text]; ok {
		return replaced
	}

	var kept []string
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" _-:", r) })
	for i, word := range words {
		if isWord := markWords[strings.ToLower(word)]; isWord || i > 0 && isNumber(word) {
			kept = append(kept, word)
		}
	}

	if len(kept) == len(words) {
		return text
	}

	if len(kept) == 0 || kept[0] != words[0] {
		return n.replace("mark", text)
	}

	kept = append(kept, n.replace("mark", text))
	replaced := strings.Join(kept, " ")
	n.pseudonyms[text] = replaced
	return replaced
}

// A redactor replaces private names in the data of a bundle.
type redactor struct {
	names *pseudonyms
	own   map[string]bool // allocscope's commands and flags
}

func newRedactor(hide, own []string) *redactor {
	return &redactor{newPseudonyms(hide), setOf(own)}
}

// document replaces private names in the texts of a value that pointer leads to.
func (r *redactor) document(pointer any) {
	r.value(reflect.ValueOf(pointer).Elem(), dropped)
}

// summary replaces private names in a summary. Its sentences are written again, from the
// replaced names.
func (r *redactor) summary(s *summary.Summary) {
	r.commandLine(s.CommandLine, s.Process.PID)
	r.arguments(s.Process.Arguments, s.Process.Executable)
	r.document(s)
	s.Text = words.ResultOf(s, words.Place{}).Text()
}

// flagWords are values of flags that are no names.
var flagWords = set(`on off auto always never`)

// numberFlags are the flags of allocscope whose values are numbers, sizes, times or rates.
var numberFlags = set(`-d --age --cycle --duration --every --interval --keep --keep-bytes --limit
--max-live --min-rss --overhead --push-spool-size --rank --since --snapshot-every --speed
--step-time --tolerable --trace-every --traces-per-day --until-settled --warmup`)

// commandLine keeps allocscope's own command and flags, the values of flags for numbers, and the
// PID.
func (r *redactor) commandLine(arguments []string, pid int) {
	isOfNumberFlag := false
	for i, argument := range arguments {
		flag, value, hasValue := strings.Cut(argument, "=")
		isNumberFlag := numberFlags[flag]
		isFlag := strings.HasPrefix(flag, "-") && r.own[flag] || isNumberFlag
		isKept := func(value string) bool {
			return flagWords[value] || (isOfNumberFlag || isNumberFlag && hasValue) && isAmount(value)
		}

		switch {
		case i == 0:
			arguments[i] = r.names.path(argument)
		case i == 1 && r.own[argument], isFlag && !hasValue, argument == strconv.Itoa(pid):
		case isFlag:
			if !isKept(value) {
				arguments[i] = flag + "=" + r.names.argument(value)
			}
		case !isKept(argument):
			arguments[i] = r.names.argument(argument)
		}

		isOfNumberFlag = isNumberFlag && !hasValue
	}
}

// isAmount is true of a number, with its unit if it has one, that is no address of a host.
func isAmount(text string) bool {
	amount, _, _ := strings.Cut(text, "/") // 10MiB/min
	return quantity.MatchString(amount) && !address.MatchString(text) &&
		(amount == text || perTime.MatchString(text))
}

var perTime = regexp.MustCompile(`/(s|min|h|day|step)$`)

// arguments replaces all that a process was called with, but for its program. Its program is the
// first if that is the path of the executable, or of a Python: a process may have written its title
// there.
func (r *redactor) arguments(arguments []string, executable string) {
	for i, argument := range arguments {
		isProgram := argument == executable || wellKnownCommand.MatchString(path.Base(argument))
		switch {
		case i == 0 && isProgram && !strings.ContainsAny(argument, separators):
			arguments[i] = r.names.path(argument)
		case i > 0 && knownSuffix.MatchString(argument):
			arguments[i] = r.names.path(argument)
		default:
			arguments[i] = r.names.argument(argument)
		}
	}
}

// argument returns the pseudonym of an argument.
func (n *pseudonyms) argument(text string) string {
	if address.MatchString(text) {
		return n.replace("host", text)
	}
	return n.replace("argument", text)
}

// value replaces the texts below a value. The rule belongs to the field around it.
func (r *redactor) value(v reflect.Value, rule textRule) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(rule(r.names, v.String()))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			r.value(v.Elem(), rule)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			r.value(v.Index(i), rule)
		}
	case reflect.Map:
		r.mapValues(v, rule)
	case reflect.Struct:
		r.structFields(v, v.Type().Name())
	}
}

// structFields replaces the texts of a struct. owner is the type that has its keys in JSON.
func (r *redactor) structFields(v reflect.Value, owner string) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return
	}

	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Name == "CommandLine" || field.Name == "Arguments" || !field.IsExported() {
			continue // commandLine and arguments replace them
		}

		if field.Anonymous {
			r.structFields(v.Field(i), owner)
			continue
		}
		r.value(v.Field(i), ruleOf(owner, field))
	}

	switch s := v.Addr().Interface().(type) {
	case *summary.Accumulation:
		if len(s.Stack) > 0 { // Function is the leaf's, without its file
			s.Function, _, _ = splitFrame(s.Stack[0])
		}
	case *keeper.Path:
		r.variables(s)
	}
}

// ruleOf is the rule of a field: its own, or the rule of its codes. Without either, texts are left
// out.
func ruleOf(owner string, field reflect.StructField) textRule {
	if rule := fieldRules[owner+"."+field.Name]; rule != nil {
		return rule
	}
	if field.Type == reflect.TypeFor[map[growth.Kind]int64]() {
		return code("BreakdownRow.kind")
	}

	key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if known := codes()[owner+"."+key]; known != nil {
		return codeOf(known)
	}
	return dropped
}

// variables replaces the names of variables, attributes and keys of a path whose types and files
// are replaced already. These stay: local variables in public files, and the recorded attributes of
// public types and modules. A program can give those types attributes of its own.
func (r *redactor) variables(p *keeper.Path) {
	root := &p.Root
	isPublic := r.names.isPackage(topOf(root.Module))
	if root.File != "" {
		isPublic = r.names.isPublic(root.File)
	}

	owner := root.Owner
	if !isPublic {
		root.Owner = r.names.qualified(root.Owner)
	}

	isOfCode := root.Kind != keeper.RootGlobal && root.Kind != keeper.RootClass
	if !isPublic || !isOfCode && !hasAttribute(root.Module+"."+owner, root.Name) {
		root.Name = r.names.qualified(root.Name)
	}

	holder := ""
	for i := range p.Links {
		link := &p.Links[i]
		link.Readings = nil // they have addresses
		switch {
		case isNumber(link.Name), r.isPublicAttribute(holder, link):
		case link.How == keeper.HowValue, link.How == keeper.HowItem:
			link.Name = r.names.replace("key", link.Name)
		default:
			link.Name = r.names.qualified(link.Name)
		}

		for k, name := range link.Names {
			if !isNumber(name) {
				link.Names[k] = r.names.replace("key", name)
			}
		}
		holder = link.Type
	}
}

// attributesText has attributes of types, and variables of modules: a line for each, or for each
// package. They belong to CPython 3.11's own objects, and to the objects of PyTorch that hold
// tensors.
//
//go:embed attributes.txt
var attributesText string

var attributes = sync.OnceValue(func() map[string]map[string]bool {
	found := make(map[string]map[string]bool)
	for line := range strings.Lines(attributesText) {
		owner, names, _ := strings.Cut(line, " ")
		found[owner] = set(names)
	}

	return found
})

func (r *redactor) isPublicAttribute(holder string, link *keeper.Link) bool {
	return link.How == keeper.HowAttribute && r.names.public[holder] &&
		hasAttribute(holder, link.Name)
}

// hasAttribute is true of a recorded attribute of a type or module, or of its package.
func hasAttribute(owner, name string) bool {
	return attributes()[owner][name] || attributes()[topOf(owner)][name]
}

// topOf is the package of a name of Python.
func topOf(name string) string {
	top, _, _ := strings.Cut(name, ".")
	return top
}

// mapValues replaces the keys and the values of a map.
func (r *redactor) mapValues(v reflect.Value, rule textRule) {
	if v.IsNil() {
		return
	}

	replaced := reflect.MakeMap(v.Type())
	for _, key := range v.MapKeys() {
		newKey, newValue := reflect.New(key.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
		newKey.Set(key)
		newValue.Set(v.MapIndex(key))
		r.value(newKey, rule)
		r.value(newValue, rule)
		replaced.SetMapIndex(newKey, newValue)
	}

	v.Set(replaced)
}
