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

// Set by the Makefile and deploy/dist, from git: the version, the commit and its time. They are
// empty after `go install`, where the module has a version.
var version, commit, commitTime string

// A buildVersion is the version, its commit and its platform. It is the content of `allocscope
// version --json`.
type buildVersion struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	// Commit of git, with "-dirty" where sources were changed; absent: it is not known.
	Commit string `json:"commit,omitempty"`
	// CommitTime is the time of the commit, as RFC 3339; absent: it is not known.
	CommitTime string `json:"commit_time,omitempty"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Go         string `json:"go"`
	// NVML is set if the program can read the memory of GPUs that NVML counts.
	NVML bool `json:"nvml"`
}

func newVersion() buildVersion {
	v := buildVersion{
		Schema: "allocscope-version/1", Version: version, Commit: commit, CommitTime: commitTime,
		OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), NVML: nvml.IsBuilt,
	}

	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = cmp.Or(v.Version, info.Main.Version)
	}
	v.Version = cmp.Or(strings.TrimPrefix(v.Version, "v"), "unknown")
	return v
}

// String is the line that `allocscope version` prints.
func (v buildVersion) String() string {
	line := "allocscope " + v.Version
	if v.Commit != "" {
		line += fmt.Sprintf(" (commit %s of %s)", v.Commit, v.CommitTime)
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
