package main

import (
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/tracer/doctor"
	"github.com/spf13/cobra"
)

func newDoctorCommand() *cobra.Command {
	var pid int
	command := &cobra.Command{
		Use:   "doctor [--pid N]",
		Short: "Check what works on this machine, and how to fix what does not",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			failed := 0
			for _, check := range doctor.Check(pid) {
				mark := "ok  "
				switch {
				case check.Remedy != "" && check.Required:
					mark = "FAIL"
					failed++
				case check.Remedy != "":
					mark = "warn"
				}

				fmt.Fprintf(command.OutOrStdout(), "%s  %-22s %s\n", mark, check.Name,
					check.Finding)
				if check.Remedy != "" {
					fmt.Fprintf(command.OutOrStdout(), "      %-22s -> %s\n", "", check.Remedy)
				}
			}

			if failed > 0 {
				return errors.New("allocscope cannot trace here: see the remedies above")
			}

			return nil
		},
	}

	command.Flags().IntVarP(&pid, "pid", "p", 0, "process that is to be traced")
	return command
}
