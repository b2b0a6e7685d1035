package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A form is an issue form. The keys, and which of them a type of element has, are those of
// https://docs.github.com/en/communities/using-templates-to-encourage-useful-issues-and-pull-requests/syntax-for-githubs-form-schema
type form struct {
	Name        string   `yaml:"name"`
	Description string   `yaml:"description"`
	Title       string   `yaml:"title"`
	Labels      []string `yaml:"labels"`
	Assignees   []string `yaml:"assignees"`
	Projects    []string `yaml:"projects"`
	Type        string   `yaml:"type"`
	Body        []struct {
		Type       string `yaml:"type"`
		ID         string `yaml:"id"`
		Attributes struct {
			Label       string `yaml:"label"`
			Description string `yaml:"description"`
			Placeholder string `yaml:"placeholder"`
			Value       string `yaml:"value"`
			Render      string `yaml:"render"`
			Multiple    bool   `yaml:"multiple"`
			Options     []any  `yaml:"options"`
			Default     int    `yaml:"default"`
		} `yaml:"attributes"`
		Validations struct {
			Required bool `yaml:"required"`
		} `yaml:"validations"`
	} `yaml:"body"`
}

// formConfig is config.yml beside the forms.
type formConfig struct {
	BlankIssuesEnabled bool `yaml:"blank_issues_enabled"`
	ContactLinks       []struct {
		Name, URL, About string
	} `yaml:"contact_links"`
}

const formFolder = "../../.github/ISSUE_TEMPLATE"

func TestIssueForms(t *testing.T) {
	names, err := filepath.Glob(formFolder + "/*.yml")
	if err != nil || len(names) != 4 {
		t.Fatalf("the forms are %q, %v", names, err)
	}
	asks := make(map[string]string)
	for _, name := range names {
		text := tracertest.Must(os.ReadFile(name))(t)
		if filepath.Base(name) == "config.yml" {
			checkFormConfig(t, text)
			continue
		}
		asks[filepath.Base(name)] = string(text)
		checkForm(t, filepath.Base(name), text)
	}

	for _, name := range []string{"bug.yml", "wrong-verdict.yml"} {
		for _, what := range []string{"allocscope version", "doctor", "allocscope bundle DIR"} {
			if !strings.Contains(asks[name], what) {
				t.Errorf("%s does not ask for %q", name, what)
			}
		}
	}
}

func parseStrictly(t *testing.T, text []byte, into any) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	tracertest.NoError(t, decoder.Decode(into))
}

func checkFormConfig(t *testing.T, text []byte) {
	var config formConfig
	parseStrictly(t, text, &config)
	for _, link := range config.ContactLinks {
		if link.Name == "" || link.About == "" || !strings.HasPrefix(link.URL, "https://") {
			t.Errorf("config.yml: link %+v", link)
		}
		page, isPage := strings.CutPrefix(
			link.URL,
			"https://github.com/allocscope/allocscope/blob/main/",
		)
		if _, err := os.Stat("../../" + page); isPage && err != nil {
			t.Error(err)
		}
	}
}

func checkForm(t *testing.T, name string, text []byte) {
	var f form
	parseStrictly(t, text, &f)
	if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
		t.Errorf("%s lacks its name, description or body", name)
	}

	var ids, labels []string
	hasInput := false
	for _, e := range f.Body {
		a := e.Attributes
		switch e.Type {
		case "markdown":
			if a.Value == "" || e.ID != "" || a.Label != "" {
				t.Errorf("%s: %+v", name, e)
			}
			continue
		case "textarea", "input":
			if a.Options != nil || e.Type == "input" && a.Render != "" {
				t.Errorf("%s: %+v", name, e)
			}
		case "dropdown", "checkboxes":
			if len(a.Options) == 0 || a.Value != "" || a.Render != "" || a.Placeholder != "" {
				t.Errorf("%s: %+v", name, e)
			}
		default:
			t.Errorf("%s: type %q", name, e.Type)
		}

		hasInput = true
		if a.Label == "" || !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(e.ID) ||
			slices.Contains(ids, e.ID) || slices.Contains(labels, a.Label) {
			t.Errorf("%s: label or ID of %+v", name, e)
		}
		ids, labels = append(ids, e.ID), append(labels, a.Label)
	}
	if !hasInput {
		t.Errorf("%s asks nothing", name)
	}
}
