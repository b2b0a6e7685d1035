package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// maxRuleBytes bounds a file of rules.
const maxRuleBytes = 1 << 20

// ReadRules reads rules from YAML: a list "jobs" of Rule. Keys that no rule has are errors, with the
// line.
func ReadRules(r io.Reader) ([]Rule, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxRuleBytes+1))
	if err != nil {
		return nil, err
	}

	if len(raw) > maxRuleBytes {
		return nil, fmt.Errorf("more than %d bytes", maxRuleBytes)
	}

	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	var file struct {
		Jobs []Rule `yaml:"jobs"`
	}

	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, plainYAML(err)
	}

	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document (write one list under jobs:)")
	}

	if len(file.Jobs) == 0 {
		return nil, errors.New("no rule (write a list under jobs:)")
	}

	return file.Jobs, checkRules(file.Jobs)
}

// typeName is how the YAML package names types of Go in its errors.
var typeName = regexp.MustCompile(` in type \S+`)

// plainYAML is an error of the YAML package without types of Go.
func plainYAML(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return err
	}

	lines := slices.Clone(wrong.Errors)
	for i := range lines {
		lines[i] = typeName.ReplaceAllString(lines[i], "")
		lines[i] = strings.ReplaceAll(lines[i], "field ", "key ")
		lines[i] = growth.Truncate(growth.Printable(lines[i]), 200)
	}

	return errors.New(strings.Join(lines[:min(len(lines), 5)], "; "))
}

// maxJobBytes of a job ID that a rule gives.
const maxJobBytes = 128

// checkRules refuses rules that choose nothing or everything.
func checkRules(rules []Rule) error {
	if len(rules) > MaxRules {
		return fmt.Errorf("%d rules, more than %d", len(rules), MaxRules)
	}

	for i, rule := range rules {
		if rule.isEmpty() {
			return fmt.Errorf("rule %d has no condition (command, user, cgroup or environment)", i+1)
		}
		if _, err := rule.uid(); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
		if rule.Job != growth.Printable(rule.Job) || len(rule.Job) > maxJobBytes {
			return fmt.Errorf("rule %d: the job ID is not printable, or longer than %d bytes", i+1,
				maxJobBytes)
		}
		if err := push.CheckLabels(rule.Labels); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
		for name := range rule.Environment {
			if name == "" || strings.ContainsAny(name, "=\x00") {
				return fmt.Errorf("rule %d: %q is not the name of a variable", i+1, name)
			}
		}
	}

	return nil
}

func (r Rule) isEmpty() bool {
	return r.Command == "" && r.User == "" && r.Cgroup == "" && len(r.Environment) == 0
}

// anyUser is the UID of a rule without a user.
const anyUser = -1

// uid returns the UID of the rule's user.
func (r Rule) uid() (int, error) {
	if r.User == "" {
		return anyUser, nil
	}

	if uid, err := strconv.ParseUint(r.User, 10, 32); err == nil {
		return int(uid), nil
	}

	account, err := user.Lookup(r.User)
	if err != nil {
		return anyUser, fmt.Errorf("there is no user %q", growth.Printable(r.User))
	}

	return strconv.Atoi(account.Uid)
}

// A matcher is a rule that is ready to be compared with processes.
type matcher struct {
	Rule
	user int // anyUser: any
}

// newMatchers prepares rules. Without any, one rule matches every process that trains.
func newMatchers(rules []Rule) ([]matcher, error) {
	if err := checkRules(rules); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}

	var all []matcher
	for _, rule := range rules {
		uid, err := rule.uid()
		if err != nil {
			return nil, err
		}
		all = append(all, matcher{rule, uid})
	}

	if len(all) == 0 {
		all = []matcher{{user: anyUser}}
	}

	return all, nil
}

// matches reports whether all conditions of the rule hold for a process of a user.
func (m *matcher) matches(p *process.Process, uid uint32) bool {
	switch {
	case m.user != anyUser && m.user != int(uid):
		return false
	case m.Command != "" && !strings.Contains(commandLine(p), m.Command):
		return false
	case m.Cgroup != "" && !strings.Contains(p.Cgroup(), m.Cgroup):
		return false
	}

	names := make([]string, 0, len(m.Environment))
	for name := range m.Environment {
		names = append(names, name)
	}

	if len(names) == 0 {
		return true
	}

	values := p.Environment(names...)
	for name, want := range m.Environment {
		if value, ok := values[name]; !ok || want != anyValue && value != want {
			return false
		}
	}

	return true
}

// anyValue of a variable.
const anyValue = "*"

// mayTrain reports whether a process with a role is watched: a rule of the user chooses other
// programs, too. Without one these are Python's, as a compiler may have a launcher as well. Launchers
// and workers serve another process.
func (m *matcher) mayTrain(role growth.Role, isPython bool) bool {
	switch role {
	case growth.RoleRank:
		return true
	case growth.RoleTrainer:
		return isPython || !m.isEmpty()
	case growth.RoleOther:
		return !m.isEmpty()
	}

	return false
}

// commandLine is the command line in one text, or the short name of a process that has none.
func commandLine(p *process.Process) string {
	return cmp.Or(strings.Join(p.Arguments, " "), p.Name)
}
