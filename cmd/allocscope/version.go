package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/tracer/gpu/nvml"
)

// version is set from git by the Makefile and by deploy/dist. It is empty after `go install`, where
// the module has a version.
var version string

// A buildVersion is the version, and what it was built from and for. It is the content of
// `allocscope version --json`.
type buildVersion struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	// Commit of git, and its time; empty: the program was built of sources without git.
	Commit string `json:"commit,omitempty"`
	Time   string `json:"commit_time,omitempty"`
	// Modified is set if the sources were not those of the commit.
	Modified bool   `json:"modified"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Go       string `json:"go"`
	// NVML is set if the program can read the memory of GPUs that NVML counts.
	NVML bool `json:"nvml"`
}

func newVersion() buildVersion {
	v := buildVersion{
		Schema: "allocscope-version/1", Version: version, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Go: runtime.Version(), NVML: nvml.IsBuilt,
	}

	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = cmp.Or(v.Version, info.Main.Version)
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				v.Commit = setting.Value
			case "vcs.time":
				v.Time = setting.Value
			case "vcs.modified":
				v.Modified = setting.Value == "true"
			}
		}
	}
	v.Version = cmp.Or(strings.TrimPrefix(v.Version, "v"), "unknown")
	return v
}

// String is the line that `allocscope version` prints.
func (v buildVersion) String() string {
	line := "allocscope " + v.Version
	if v.Commit != "" {
		const shortCommit = 12
		line += fmt.Sprintf(" (commit %.*s of %s", shortCommit, v.Commit, v.Time)
		if v.Modified {
			line += ", modified"
		}
		line += ")"
	}

	nvmlText := "without NVML (static build)"
	if v.NVML {
		nvmlText = "with NVML"
	}
	return fmt.Sprintf("%s %s/%s %s, %s", line, v.OS, v.Arch, v.Go, nvmlText)
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			out := command.OutOrStdout()
			if asJSON {
				return json.NewEncoder(out).Encode(newVersion())
			}
			_, err := fmt.Fprintln(out, newVersion())
			return err
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print the version as JSON")
	return command
}
