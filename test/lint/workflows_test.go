package main

import (
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestWorkflowFaults(t *testing.T) {
	commit, digest := strings.Repeat("0a", 20), "@sha256:"+strings.Repeat("0a", 32)
	const token = "permissions: {id-token: write}"
	const signs, signer = token + ", ", "actions/attest-build-provenance@"
	for _, c := range []struct {
		name, top, job string
		want           []string
	}{
		{"commit", "", "steps: [{uses: actions/checkout@" + commit + "}]", nil},
		{"folder of an action", "", "steps: [{uses: a/b/c@" + commit + "}]", nil},
		{"tag", "", "steps: [{uses: actions/checkout@v5}]", []string{"uses actions/checkout@v5"}},
		{"short commit", "", "steps: [{uses: a/b@0a0a0a0}]", []string{"uses a/b@0a0a0a0"}},
		{"workflow", "", "uses: a/b/.github/workflows/c.yml@main", []string{"uses a/b/.github"}},
		{"folder of its own", "", "steps: [{uses: ./.github/actions/a}]", nil},
		{"image", "", "container: golang:1" + digest, nil},
		{"tag of an image", "", "container: golang:1", []string{"runs in golang:1 without"}},
		{"tag with options", "", "container: {image: go:1}", []string{"runs in go:1 without"}},
		{"service", "", "services: {db: {image: db:1}}", []string{"runs in db:1 without"}},
		{"action of a tag", "", "steps: [{uses: docker://a/b:1}]", []string{"uses docker://a/b:1"}},
		{"action of an image", "", "steps: [{uses: 'docker://a/b" + digest + "'}]", nil},

		{"make beside no token", "", "steps: [{run: make dist}]", nil},
		{"signer", "", signs + "steps: [{uses: " + signer + commit + "}]", nil},
		{"shell", "", signs + `steps: [{run: "a=$(tar -x b | grep c)\ncd e && cmp - f"}]`, nil},
		{"make", "", signs + "steps: [{run: make dist}]", []string{"and runs make"}},
		{"npm in a pipe", "", signs + "steps: [{run: cat a | npm ci}]", []string{"and runs npm"}},
		{
			"script", "", signs + `steps: [{run: "echo a\nx=1 .ci/run; echo $(go env)"}]`,
			[]string{"and runs .ci/run", "and runs go"},
		},
		{
			"checkout", "", signs + "steps: [{uses: actions/checkout@" + commit + "}]",
			[]string{"and uses actions/checkout"},
		},
		{"container", "", signs + "container: a" + digest, []string{"and runs in a@sha256"}},
		{"all", "", "permissions: write-all, steps: [{run: make}]", []string{"and runs make"}},
		{"inherited", token, "steps: [{run: make}]", []string{"runs make"}},
		{"taken back", "permissions: write-all", "permissions: {}, steps: [{run: make}]", nil},
	} {
		text := c.top + "\njobs:\n  one: {" + c.job + "}\n"
		got, err := workflowFaults([]source{{".github/workflows/a.yml", text}, {"b.yml", text}})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		isWanted := slices.EqualFunc(got, c.want, strings.Contains)
		if !isWanted {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Dependabot has all modules and packages that git tracks.
func TestDependabot(t *testing.T) {
	var config struct {
		Updates []struct {
			System      string   `yaml:"package-ecosystem"`
			Directory   string   `yaml:"directory"`
			Directories []string `yaml:"directories"`
		} `yaml:"updates"`
	}
	text := tracertest.Must(os.ReadFile("../../.github/dependabot.yml"))(t)
	tracertest.NoError(t, yaml.Unmarshal(text, &config))
	got := make(map[string][]string)
	for _, u := range config.Updates {
		for _, folder := range append(u.Directories, u.Directory) {
			if folder != "" {
				got[u.System] = append(got[u.System], folder)
			}
		}
	}

	for system, file := range map[string]string{"gomod": "go.mod", "npm": "package.json"} {
		git := exec.Command("git", "-C", "../..", "ls-files", "--", file, "*/"+file)
		tracked := tracertest.Must(git.Output())(t)
		var want []string
		for file := range strings.FieldsSeq(string(tracked)) {
			want = append(want, path.Dir("/"+file))
		}
		slices.Sort(want)
		slices.Sort(got[system])
		if len(want) == 0 || !slices.Equal(got[system], want) {
			t.Errorf("Dependabot looks for %s in %q, want %q", system, got[system], want)
		}
	}
	if !slices.Equal(got["github-actions"], []string{"/"}) {
		t.Errorf("Dependabot looks for actions in %q", got["github-actions"])
	}
}
