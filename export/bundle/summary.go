package bundle

import (
	_ "embed"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/keeper"
)

// A textRule replaces private names in a text of one sort.
type textRule func(n *pseudonyms, text string) string

// fieldRules are the fields of documents that hold names, by their type and name. All other texts
// are sentences. So a new field is safe before it is listed here.
var fieldRules = map[string]textRule{
	"Summary.Version":           kept,
	"Summary.Kernel":            kept,
	"Summary.Architecture":      kept,
	"Source.Producers":          (*pseudonyms).path,
	"Process.Command":           (*pseudonyms).command,
	"Process.Executable":        (*pseudonyms).path,
	"TreeProcess.Command":       (*pseudonyms).command,
	"Related.Command":           (*pseudonyms).command,
	"OtherGrowth.Command":       (*pseudonyms).command,
	"GPUMemory.Command":         (*pseudonyms).command,
	"Target.BootID":             named("boot"),
	"Continued.Folder":          named("trace"),
	"Mark.Text":                 (*pseudonyms).mark,
	"Accumulation.Module":       (*pseudonyms).path,
	"Accumulation.Component":    (*pseudonyms).component,
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
	"BreakdownRow.Name":         (*pseudonyms).rowName,
	"GPUBreakdownRow.Name":      (*pseudonyms).rowName,
	"GPUBreakdownRow.Function":  strict,
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
	"TensorGroup.DType":         (*pseudonyms).dtype,
	"Root.Module":               (*pseudonyms).module,
	"Root.File":                 (*pseudonyms).path,
	"Root.Owner":                kept, // variables replaces these
	"Root.Name":                 kept,
	"Link.Name":                 kept,
}

func kept(_ *pseudonyms, text string) string { return text }

func strict(n *pseudonyms, text string) string { return n.sentence(text, true) }

// rowName returns the name of a row of a breakdown: a file, or frames.
func (n *pseudonyms) rowName(text string) string {
	if strings.HasPrefix(text, "/") && !strings.Contains(text, ": ") && !strings.Contains(text, " < ") {
		return n.path(text)
	}

	return strict(n, text)
}

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
	n.pseudonyms[text], n.written[replaced] = replaced, true
	return replaced
}

// document replaces private names in the texts of a value that pointer leads to.
func (n *pseudonyms) document(pointer any) {
	n.value(reflect.ValueOf(pointer).Elem(), func(n *pseudonyms, text string) string {
		return n.sentence(text, false)
	})
}

// summary replaces private names in a summary.
func (n *pseudonyms) summary(s *summary.Summary) {
	n.keep(s.Kernel)
	n.keep(s.Version)
	n.commandLine(s.CommandLine, s.Process.PID)
	n.arguments(s.Process.Arguments, s.Process.Executable)
	n.document(s)
}

// flagWords are values of flags that are no names.
var flagWords = set(`on off auto always never`)

// numberFlags are the flags of allocscope whose values are numbers, sizes, times or rates.
var numberFlags = set(`-d --age --cycle --duration --every --interval --keep --keep-bytes --limit
--max-live --min-rss --overhead --push-spool-size --rank --since --snapshot-every --speed
--step-time --tolerable --trace-every --traces-per-day --until-settled --warmup`)

// commandLine keeps allocscope's own command and flags, the values of flags for numbers, and the
// PID.
func (n *pseudonyms) commandLine(arguments []string, pid int) {
	isOfNumberFlag := false
	for i, argument := range arguments {
		flag, value, hasValue := strings.Cut(argument, "=")
		isNumberFlag := numberFlags[flag]
		isFlag := strings.HasPrefix(flag, "-") && vocabulary[flag] || isNumberFlag
		isKept := func(value string) bool {
			return flagWords[value] || (isOfNumberFlag || isNumberFlag && hasValue) && isAmount(value)
		}

		switch {
		case i == 0:
			arguments[i] = n.path(argument)
		case i == 1 && vocabulary[argument], isFlag && !hasValue, argument == strconv.Itoa(pid):
		case isFlag:
			if !isKept(value) {
				arguments[i] = flag + "=" + n.argument(value)
			}
		case !isKept(argument):
			arguments[i] = n.argument(argument)
		}

		isOfNumberFlag = isNumberFlag && !hasValue
	}
}

// isAmount is true of a number, with its unit if it has one, that is no address of a host.
func isAmount(text string) bool {
	amount, _, _ := strings.Cut(text, "/") // 10MiB/min
	return quantity.MatchString(amount) && !address.MatchString(text) &&
		(amount == text || isOwnWord(text))
}

// arguments replaces all that a process was called with, but for its program. Its program is the
// first if that is the path of the executable, or of a Python: a process may have written its title
// there.
func (n *pseudonyms) arguments(arguments []string, executable string) {
	for i, argument := range arguments {
		isProgram := argument == executable || wellKnownCommand.MatchString(path.Base(argument))
		switch {
		case i == 0 && isProgram && !strings.ContainsAny(argument, separators):
			arguments[i] = n.path(argument)
		case i > 0 && knownSuffix.MatchString(argument):
			arguments[i] = n.path(argument)
		default:
			arguments[i] = n.argument(argument)
		}
	}
}

// argument returns the pseudonym of an argument.
func (n *pseudonyms) argument(text string) string {
	switch {
	case address.MatchString(text):
		return n.replace("host", text)
	case quantity.MatchString(text): // sentences keep the number
		n.counts["argument"]++
		return "argument-" + strconv.Itoa(n.counts["argument"])
	}

	return n.replace("argument", text)
}

// value replaces the texts below a value. The rule belongs to the field around it.
func (n *pseudonyms) value(v reflect.Value, rule textRule) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(rule(n, v.String()))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n.value(v.Elem(), rule)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			n.value(v.Index(i), rule)
		}
	case reflect.Map:
		n.mapValues(v, rule)
	case reflect.Struct:
		n.structFields(v, rule)
	}
}

func (n *pseudonyms) structFields(v reflect.Value, rule textRule) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return
	}

	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Name == "CommandLine" || field.Name == "Arguments" || !field.IsExported() {
			continue // commandLine and arguments replace them
		}

		own, isListed := fieldRules[v.Type().Name()+"."+field.Name]
		if !isListed {
			own = rule
		}

		n.value(v.Field(i), own)
	}

	switch s := v.Addr().Interface().(type) {
	case *summary.Accumulation:
		if len(s.Stack) > 0 { // Function is the leaf's, without its file
			s.Function, _, _ = splitFrame(s.Stack[0])
		}
	case *keeper.Path:
		n.variables(s)
	}
}

// variables replaces the names of variables, attributes and keys of a path whose types and files
// are replaced already. These stay: local variables in public files, and the recorded attributes of
// public types and modules. A program can give those types attributes of its own.
func (n *pseudonyms) variables(p *keeper.Path) {
	root := &p.Root
	isPublic := n.isPackage(topOf(root.Module))
	if root.File != "" {
		isPublic = n.isPublic(root.File)
	}

	owner := root.Owner
	if !isPublic {
		root.Owner = n.qualified(root.Owner)
	}

	isOfCode := root.Kind != keeper.RootGlobal && root.Kind != keeper.RootClass
	if !isPublic || !isOfCode && !hasAttribute(root.Module+"."+owner, root.Name) {
		root.Name = n.qualified(root.Name)
	}

	holder := ""
	for i := range p.Links {
		link := &p.Links[i]
		switch {
		case isNumber(link.Name), n.isPublicAttribute(holder, link):
		case link.How == keeper.HowValue, link.How == keeper.HowItem:
			link.Name = n.replace("key", link.Name)
		default:
			link.Name = n.qualified(link.Name)
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

var attributes = attributesOf(attributesText)

func attributesOf(text string) map[string]map[string]bool {
	found := make(map[string]map[string]bool)
	for line := range strings.Lines(text) {
		owner, names, _ := strings.Cut(line, " ")
		found[owner] = set(names)
	}

	return found
}

func (n *pseudonyms) isPublicAttribute(holder string, link *keeper.Link) bool {
	return link.How == keeper.HowAttribute && n.public[holder] && hasAttribute(holder, link.Name)
}

// hasAttribute is true of a recorded attribute of a type or module, or of its package.
func hasAttribute(owner, name string) bool {
	return attributes[owner][name] || attributes[topOf(owner)][name]
}

// topOf is the package of a name of Python.
func topOf(name string) string {
	top, _, _ := strings.Cut(name, ".")
	return top
}

// mapValues replaces the keys and the values of a map.
func (n *pseudonyms) mapValues(v reflect.Value, rule textRule) {
	if v.IsNil() {
		return
	}

	replaced := reflect.MakeMap(v.Type())
	for _, key := range v.MapKeys() {
		newKey, newValue := reflect.New(key.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
		newKey.Set(key)
		newValue.Set(v.MapIndex(key))
		n.value(newKey, rule)
		n.value(newValue, rule)
		replaced.SetMapIndex(newKey, newValue)
	}

	v.Set(replaced)
}
