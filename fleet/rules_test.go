package fleet

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestReadRules(t *testing.T) {
	rules, err := ReadRules(strings.NewReader(`
jobs:
- job_id: llama
  command: train.py
  user: root
  cgroup: /slurm/
  environment: {SLURM_JOB_ID: "*", TEAM: vision}
  labels: {team: vision}
- user: "1000"
`))
	if err != nil || len(rules) != 2 {
		t.Fatalf("%d rules, %v", len(rules), err)
	}

	want := `{llama train.py root /slurm/ map[SLURM_JOB_ID:* TEAM:vision] map[team:vision]}`
	if got := fmt.Sprint(rules[0]); got != want {
		t.Errorf("%s, want %s", got, want)
	}

	if rules[1].User != "1000" {
		t.Errorf("%+v", rules[1])
	}

	many := "jobs:\n" + strings.Repeat("- {command: x}\n", MaxRules+1)
	for text, want := range map[string]string{
		"":                        "no rule",
		"jobs: []":                "no rule",
		"jobs:\n- comand: x":      "line 2: key comand not found",
		"jobs:\n- {command: [x]}": "line 2: cannot unmarshal",
		"jobs:\n- job_id: x":      "rule 1 has no condition",
		"jobs:\n- {command: x}\n- {user: no-such-user}": `rule 2: there is no user "no-such-user"`,
		"jobs:\n- {environment: {A=B: x}}":              `rule 1: "A=B" is not the name of a variable`,
		"rules:\n- command: x":                          "line 1: key rules not found",
		"jobs:\n- command: x\n---\njobs: []":            "more than one document",
		"jobs: &a\n- {command: \"\x1b[31m\", \x07: y}":  "control characters",
		many:                            "65 rules, more than 64",
		strings.Repeat("#", 1<<20) + "": "no rule",
		strings.Repeat("# ", 1<<20):     "more than 1048576 bytes",
	} {
		_, err := ReadRules(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// An alias that repeats itself is refused by the YAML package, at once.
func TestReadRulesBomb(t *testing.T) {
	text := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		text += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9))
	}

	if _, err := ReadRules(strings.NewReader(text)); err == nil {
		t.Error("it is taken")
	}
}

func TestFirstMatch(t *testing.T) {
	p := startSteps(t, []string{"TEAM=vision", "EMPTY="}, "marker-of-a-job")
	uid := uint32(os.Geteuid())
	for _, c := range []struct {
		rule Rule
		want bool
	}{
		{Rule{Command: "steps marker-of-a-job"}, true},
		{Rule{Command: "marker-of-another"}, false},
		{Rule{Environment: map[string]string{"TEAM": "vision"}}, true},
		{Rule{Environment: map[string]string{"TEAM": "*"}}, true},
		{Rule{Environment: map[string]string{"EMPTY": ""}}, true},
		{Rule{Environment: map[string]string{"TEAM": "vis"}}, false},
		{Rule{Environment: map[string]string{"NO_SUCH": "*"}}, false},
		{Rule{Environment: map[string]string{"TEAM": "vision", "NO_SUCH": "*"}}, false},
		{Rule{Cgroup: "/"}, true},
		{Rule{Cgroup: "/no/such"}, false},
		{Rule{User: fmt.Sprint(uid)}, true},
		{Rule{User: fmt.Sprint(uid + 1), Command: "marker-of-a-job"}, false},
		{Rule{Command: "marker-of-a-job", Environment: map[string]string{"TEAM": "text"}}, false},
	} {
		rules := tracertest.Must(newMatchers([]Rule{c.rule}))(t)
		f := newFinder(rules, 0, 1)
		if got := firstMatch(p, f.rulesOf(uid), uid) != nil; got != c.want {
			t.Errorf("%+v: %v", c.rule, got)
		}
	}

	rules, err := newMatchers(nil)
	if err != nil || len(rules) != 1 {
		t.Fatalf("without rules: %+v, %v", rules, err)
	}
	for _, c := range []struct {
		role           growth.Role
		isPython, want bool
	}{
		{growth.RoleRank, false, true},
		{growth.RoleTrainer, true, true},
		{growth.RoleTrainer, false, false},
		{growth.RoleOther, true, false},
		{growth.RoleLauncher, true, false},
	} {
		if got := rules[0].mayTrain(c.role, c.isPython); got != c.want {
			t.Errorf("without rules, %+v: %v", c, got)
		}
	}
}
