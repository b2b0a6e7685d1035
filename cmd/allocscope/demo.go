package main

import (
	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/demo"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
)

// newDemoCommand returns the demo command, whose trace is shown as any other.
func newDemoCommand(stderr *console.Console) *cobra.Command {
	return demo.NewCommand(func(command *cobra.Command) trace.Environment {
		return traceEnvironment(command.Context(), stderr, command.OutOrStdout())
	})
}
