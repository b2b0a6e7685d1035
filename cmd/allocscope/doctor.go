package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/target"
	"github.com/allocscope/allocscope/tracer/doctor"
)

func newDoctorCommand() *cobra.Command {
	var choice target.Choice
	command := &cobra.Command{
		Use:   "doctor [PID]",
		Short: "Check what works on this machine, and how to fix what does not",
		Args:  cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			pid, err := choice.Resolve(arguments, "allocscope doctor", false)
			if err != nil {
				return err
			}

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

	choice.AddPID(command.Flags(), "process that is to be traced, as the argument PID")
	return command
}
