package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/target"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/tracer/doctor"
)

func newDoctorCommand() *cobra.Command {
	var choice target.Choice
	var asJSON bool
	command := &cobra.Command{
		Use:   "doctor [PID]",
		Short: "Check what works on this machine, and how to fix what does not",
		Long: `Doctor checks this machine, and the process PID. Each check is ok, warn (a trace goes on
without it) or FAIL (nothing can be traced). The last line is the command to run. The exit
status is 1 if a check failed.`,
		Example: `  sudo allocscope doctor
  sudo allocscope doctor 4242 --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			pid, err := choice.Resolve(arguments, "allocscope doctor", false)
			if err != nil {
				return err
			}

			report := doctor.NewReport(pid)
			if err := writeDoctor(command.OutOrStdout(), report, asJSON); err != nil {
				return err
			}
			if !report.Ready {
				return errors.New("allocscope cannot trace here: see the remedies above")
			}
			return nil
		},
	}

	choice.AddPID(command, "process that is to be traced, as the argument PID")
	command.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return command
}

// doctorMarks begin the lines of checks.
var doctorMarks = map[doctor.State]string{
	doctor.StateOK: "ok  ", doctor.StateWarn: "warn", doctor.StateFail: "FAIL",
}

func writeDoctor(out io.Writer, report doctor.Report, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(report)
	}

	out = console.Wrapped(out)
	for _, check := range report.Checks {
		fmt.Fprintf(out, "%s  %-22s %s\n", doctorMarks[check.State], check.Name, check.Finding)
		if check.Remedy != "" {
			fmt.Fprintf(out, "      %-22s -> %s\n", "", check.Remedy)
		}
	}
	if report.Ready {
		fmt.Fprintf(out, "\nReady: %s\n", report.Command)
		return nil
	}
	failed := units.Plural(report.Failed, "check failed", "checks failed")
	fmt.Fprintf(out, "\nNot ready: %s\n", failed)
	return nil
}
