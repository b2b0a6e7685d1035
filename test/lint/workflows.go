package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A workflow of GitHub Actions, with the keys that decide which code it runs and the rights of that
// code: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax
type workflow struct {
	Permissions permissions    `yaml:"permissions"`
	Jobs        map[string]job `yaml:"jobs"`
}

type job struct {
	Permissions *permissions     `yaml:"permissions"` // nil: the workflow's
	Container   image            `yaml:"container"`
	Services    map[string]image `yaml:"services"`
	Uses        string           `yaml:"uses"`
	Steps       []struct {
		Uses string `yaml:"uses"`
		Run  string `yaml:"run"`
	} `yaml:"steps"`
}

// permissions report whether a job can sign: whether it gets an OpenID Connect token.
type permissions struct{ canSign bool }

// UnmarshalYAML reads a name for all permissions, or one by one.
func (p *permissions) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		p.canSign = node.Value == "write-all"
		return nil
	}

	each := make(map[string]string)
	err := node.Decode(&each)
	p.canSign = each["id-token"] == "write"
	return err
}

// image is the name of a container's image; empty: there is none.
type image string

// UnmarshalYAML reads the name of an image, alone or with options.
func (i *image) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*i = image(node.Value)
		return nil
	}

	var container struct {
		Image string `yaml:"image"`
	}
	err := node.Decode(&container)
	*i = image(container.Image)
	return err
}

var (
	workflowPath = regexp.MustCompile(`^\.github/workflows/[^/]+\.ya?ml$`)
	pinnedAction = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	pinnedImage  = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
)

// signers are the actions that a job may use that can sign.
var signers = []string{
	"actions/download-artifact", "actions/attest-build-provenance", "pypa/gh-action-pypi-publish",
}

// signerCommands are the commands of such a job: of the shell and of the runner's base system.
var signerCommands = []string{
	"[", "cat", "cd", "cmp", "echo", "exit", "grep", "mkdir", "mv", "printf", "set", "sha256sum",
	"tar", "test",
}

// workflowFaults returns a line for each action or image that is not pinned, and for each job that
// can sign and runs the code of others.
func workflowFaults(sources []source) (faults []string, err error) {
	for _, s := range sources {
		if !workflowPath.MatchString(s.path) {
			continue
		}

		var w workflow
		if err := yaml.Unmarshal([]byte(s.text), &w); err != nil {
			return nil, fmt.Errorf("read %s: %w", s.path, err)
		}
		for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
			j := w.Jobs[name]
			found := j.unpinned()
			if j.Permissions != nil && j.Permissions.canSign ||
				j.Permissions == nil && w.Permissions.canSign {
				found = append(found, j.signsBeside()...)
			}
			for _, fault := range found {
				faults = append(faults, fmt.Sprintf("%s: job %s %s", s.path, name, fault))
			}
		}
	}
	return faults, nil
}

// actions returns the actions that the job and its steps use.
func (j job) actions() (actions []string) {
	if j.Uses != "" {
		actions = append(actions, j.Uses)
	}
	for _, step := range j.Steps {
		if step.Uses != "" {
			actions = append(actions, step.Uses)
		}
	}
	return actions
}

// images returns the images of the job's containers.
func (j job) images() (images []string) {
	for _, i := range append(slices.Collect(maps.Values(j.Services)), j.Container) {
		if i != "" {
			images = append(images, string(i))
		}
	}
	slices.Sort(images)
	return images
}

func (j job) unpinned() (faults []string) {
	for _, action := range j.actions() {
		name, isImage := strings.CutPrefix(action, "docker://")
		isPinned := !isImage && pinnedAction.MatchString(action) ||
			isImage && pinnedImage.MatchString(name)
		if !isPinned && !strings.HasPrefix(action, "./") { // a part of the same commit
			faults = append(faults, fmt.Sprintf("uses %s without a commit (40 digits)", action))
		}
	}
	for _, image := range j.images() {
		if !pinnedImage.MatchString(image) {
			faults = append(faults, fmt.Sprintf("runs in %s without a digest (@sha256:)", image))
		}
	}
	return faults
}

// signsBeside returns the code of others that a job runs that can sign.
func (j job) signsBeside() (faults []string) {
	add := func(does, what string) {
		faults = append(faults, fmt.Sprintf("can sign (id-token: write) and %s %s", does, what))
	}
	for _, action := range j.actions() {
		if name, _, _ := strings.Cut(action, "@"); !slices.Contains(signers, name) {
			add("uses", name)
		}
	}
	for _, image := range j.images() {
		add("runs in", image)
	}
	for _, step := range j.Steps {
		for _, command := range commandsOf(step.Run) {
			if !slices.Contains(signerCommands, command) {
				add("runs", command)
			}
		}
	}
	return faults
}

var (
	continuedLine    = regexp.MustCompile(`\\\n`)
	commandSeparator = regexp.MustCompile("\\n|;|&&|&|\\|\\|?|\\$\\(|`|<\\(|[{(]\\s")
	assignment       = regexp.MustCompile(`^\w+=\S*$`)
)

// commandsOf returns the commands of a simple script, and names the lines that may be none.
func commandsOf(script string) (commands []string) {
	script = continuedLine.ReplaceAllString(script, " ")
	for _, part := range commandSeparator.Split(script, -1) {
		words := strings.Fields(part)
		for len(words) > 0 && assignment.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			commands = append(commands, words[0])
		}
	}
	return commands
}
