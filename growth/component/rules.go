package component

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a table of rules.
const (
	// MaxRulesBytes is the greatest length of the text.
	MaxRulesBytes = 1 << 20
	maxRules      = 1000
	maxNameBytes  = 64
)

// A where is the part of a frame that a pattern is matched against.
type where uint8

const (
	whereFunction where = iota
	whereFile           // source of a Python frame
	whereModule         // path of a native frame's file
	whereRoot           // Stack.Root, which counts as one more frame, outermost
)

var wheres = map[string]where{
	"function": whereFunction, "file": whereFile, "module": whereModule, "root": whereRoot,
}

// Components with a special meaning.
const (
	layerName = "-" // the memory is the caller's
	ownName   = "*" // the frame's own package, script or library
)

// A rule is one line of the table.
type rule struct {
	component string
	// isLeaf: the rule is for the allocation site alone, else for every frame.
	isLeaf     bool
	conditions []condition
}

// A condition is a pattern that must be found.
type condition struct {
	where   where
	pattern *regexp.Regexp
}

// canMatchAt is true if the rule's conditions allow for frames with such a place.
func (r *rule) canMatchAt(place where) bool {
	for _, c := range r.conditions {
		if c.where != place && (c.where != whereFunction || place == whereRoot) {
			return false
		}
	}
	return true
}

// matches is true if the rule's conditions on one part of a frame hold.
func (r *rule) matches(where where, text string) bool {
	for _, c := range r.conditions {
		if c.where == where && !c.pattern.MatchString(text) {
			return false
		}
	}
	return true
}

// has is true if the rule has a condition on a part of a frame.
func (r *rule) has(where where) bool {
	return slices.ContainsFunc(r.conditions, func(c condition) bool { return c.where == where })
}

// componentOf a frame whose own name is own.
func (r *rule) componentOf(own string) string {
	if r.component == ownName {
		return own
	}
	return r.component
}

// Names returns the components that the rules name, without the components that have a frame's own
// name.
func (rs *Rules) Names() []string {
	var names []string
	for _, r := range rs.rules {
		if r.component != layerName && r.component != ownName {
			names = append(names, r.component)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ParseRules reads rules in the format of docs/reference/components.md and appends the built-in
// ones. Errors have the given name of the file, the line and the cause.
func ParseRules(name string, text []byte) (*Rules, error) {
	rules, err := parseRules(name, text)
	if err != nil {
		return nil, err
	}
	builtin, err := parseRules("built-in rules", builtinRules)
	if err != nil {
		return nil, err
	}
	return &Rules{rules: append(rules, builtin...)}, nil
}

func parseRules(name string, text []byte) ([]rule, error) {
	if len(text) > MaxRulesBytes {
		return nil, fmt.Errorf("%s: longer than %d bytes", name, MaxRulesBytes)
	}

	var rules []rule
	for i, line := range strings.Split(string(text), "\n") {
		rule, err := parseRule(strings.Fields(line))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		case rule == nil:
			continue
		case len(rules) == maxRules:
			return nil, fmt.Errorf("%s:%d: more than %d rules", name, i+1, maxRules)
		}
		rules = append(rules, *rule)
	}

	return rules, nil
}

// parseRule reads the fields of a line; the rule is nil for a blank line or a comment.
func parseRule(fields []string) (*rule, error) {
	isComment := func(f string) bool { return strings.HasPrefix(f, "#") }
	if i := slices.IndexFunc(fields, isComment); i >= 0 {
		fields = fields[:i]
	}

	isHidden := func(r rune) bool { return !strconv.IsPrint(r) }
	switch {
	case len(fields) == 0:
		return nil, nil
	case len(fields) < 4 || len(fields)%2 != 0:
		return nil, fmt.Errorf("%d words, not COMPONENT any|leaf WHERE PATTERN [WHERE PATTERN ...]",
			len(fields))
	case len(fields[0]) > maxNameBytes:
		return nil, fmt.Errorf("component of more than %d bytes", maxNameBytes)
	case strings.ContainsFunc(fields[0], isHidden):
		return nil, fmt.Errorf("component %q is not printable", fields[0])
	case fields[1] != "any" && fields[1] != "leaf":
		return nil, fmt.Errorf("%q is neither any nor leaf", fields[1])
	}

	r := &rule{component: fields[0], isLeaf: fields[1] == "leaf"}
	for pair := range slices.Chunk(fields[2:], 2) {
		where, ok := wheres[pair[0]]
		if !ok {
			return nil, fmt.Errorf("%q is none of function, file, module and root", pair[0])
		}
		pattern, err := regexp.Compile(pair[1])
		if err != nil {
			return nil, fmt.Errorf("pattern of %s: %w", pair[0], err)
		}
		r.conditions = append(r.conditions, condition{where, pattern})
	}

	return r, r.check()
}

// check refuses rules that can never match.
func (r *rule) check() error {
	hasFrame := r.has(whereFunction) || r.has(whereFile) || r.has(whereModule)
	switch {
	case r.has(whereFile) && r.has(whereModule):
		return errors.New("a frame has a file or a module, not both")
	case r.has(whereRoot) && (r.isLeaf || hasFrame):
		return errors.New("a root is no leaf, and has nothing but its name")
	case r.component == layerName && !r.isLeaf:
		return fmt.Errorf("component %q is for leaf rules", layerName)
	}
	return nil
}
