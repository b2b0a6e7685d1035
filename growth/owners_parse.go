package growth

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
	// MaxOwnersBytes is how long the text may be.
	MaxOwnersBytes = 1 << 20
	maxOwnerRules  = 1000
	maxOwnerName   = 64
)

// An ownerWhere is what of a frame a pattern is matched against.
type ownerWhere uint8

const (
	whereFunction ownerWhere = iota
	whereFile                // source of a Python frame
	whereModule              // path of a native frame's file
	whereRoot                // Stack.Root, which is as one more frame, outermost
)

var ownerWheres = map[string]ownerWhere{"function": whereFunction, "file": whereFile, "module": whereModule, "root": whereRoot}

// Owners that are not names.
const (
	layerOwner = "-" // the frame holds nothing: its caller does
	ownName    = "*" // the frame's own package, script or library
)

// An ownerRule is one line of the table.
type ownerRule struct {
	owner      string
	leaf       bool // it looks at the holder alone, else at every frame
	conditions []ownerCondition
}

// An ownerCondition is a pattern that must be found.
type ownerCondition struct {
	where   ownerWhere
	pattern *regexp.Regexp
}

// at tells whether a rule may fit frames of such a place: its conditions ask for no other one.
func (r *ownerRule) at(place ownerWhere) bool {
	for _, c := range r.conditions {
		if c.where != place && (c.where != whereFunction || place == whereRoot) {
			return false
		}
	}
	return true
}

// fits tells whether the rule's conditions of one sort hold.
func (r *ownerRule) fits(where ownerWhere, text string) bool {
	for _, c := range r.conditions {
		if c.where == where && !c.pattern.MatchString(text) {
			return false
		}
	}
	return true
}

// nameOf is the owner, of a frame with that name of its own.
func (r *ownerRule) nameOf(own string) string {
	if r.owner == ownName {
		return own
	}
	return r.owner
}

// ParseOwners reads rules as docs/owners.md describes them; the built-in ones follow. Errors name the file, by the name
// given, the line and the cause.
func ParseOwners(name string, text []byte) (*Owners, error) {
	rules, err := parseOwnerRules(name, text)
	if err != nil {
		return nil, err
	}
	builtin, err := parseOwnerRules("built-in owners", builtinRules)
	if err != nil {
		return nil, err
	}
	return &Owners{rules: append(rules, builtin...)}, nil
}

func parseOwnerRules(name string, text []byte) ([]ownerRule, error) {
	if len(text) > MaxOwnersBytes {
		return nil, fmt.Errorf("%s: longer than %d bytes", name, MaxOwnersBytes)
	}
	var rules []ownerRule
	for i, line := range strings.Split(string(text), "\n") {
		rule, err := parseOwnerRule(strings.Fields(line))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		case rule == nil:
			continue
		case len(rules) == maxOwnerRules:
			return nil, fmt.Errorf("%s:%d: more than %d rules", name, i+1, maxOwnerRules)
		}
		rules = append(rules, *rule)
	}
	return rules, nil
}

// parseOwnerRule reads the fields of a line; the rule is nil where there is none.
func parseOwnerRule(fields []string) (*ownerRule, error) {
	if comment := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, "#") }); comment >= 0 {
		fields = fields[:comment]
	}
	switch {
	case len(fields) == 0:
		return nil, nil
	case len(fields) < 4 || len(fields)%2 != 0:
		return nil, fmt.Errorf("%d words, not OWNER any|leaf WHERE PATTERN [WHERE PATTERN ...]", len(fields))
	case len(fields[0]) > maxOwnerName:
		return nil, fmt.Errorf("owner of more than %d bytes", maxOwnerName)
	case strings.ContainsFunc(fields[0], func(r rune) bool { return !strconv.IsPrint(r) }):
		return nil, fmt.Errorf("owner %q is not printable", fields[0])
	case fields[1] != "any" && fields[1] != "leaf":
		return nil, fmt.Errorf("%q is neither any nor leaf", fields[1])
	}
	rule := &ownerRule{owner: fields[0], leaf: fields[1] == "leaf"}
	for pair := range slices.Chunk(fields[2:], 2) {
		where, ok := ownerWheres[pair[0]]
		if !ok {
			return nil, fmt.Errorf("%q is none of function, file, module and root", pair[0])
		}
		pattern, err := regexp.Compile(pair[1])
		if err != nil {
			return nil, fmt.Errorf("pattern of %s: %w", pair[0], err)
		}
		rule.conditions = append(rule.conditions, ownerCondition{where, pattern})
	}
	return rule, rule.check()
}

// check refuses rules that could never fit.
func (r *ownerRule) check() error {
	switch {
	case r.asks(whereFile) && r.asks(whereModule):
		return errors.New("a frame has a file or a module, not both")
	case r.asks(whereRoot) && (r.leaf || r.asks(whereFunction) || r.asks(whereFile) || r.asks(whereModule)):
		return errors.New("a root is no leaf, and has nothing but its name")
	case r.owner == layerOwner && !r.leaf:
		return fmt.Errorf("owner %q is for leaf rules", layerOwner)
	}
	return nil
}

// asks tells whether the rule has a condition of one sort.
func (r *ownerRule) asks(where ownerWhere) bool {
	return slices.ContainsFunc(r.conditions, func(c ownerCondition) bool { return c.where == where })
}
