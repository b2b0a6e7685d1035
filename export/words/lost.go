package words

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/keeper"
)

// lostText is the proof of a leak.
func lostText(v summary.Verdict) string {
	l := v.Lost
	if l == nil {
		return "proven: nothing in the process refers to what grows"
	}

	return fmt.Sprintf("proven: nothing in the process refers to %d of %d samples, in two searches %s apart",
		l.Samples, l.Of, clockText(l.ApartS))
}

// LossProven is the log's line about objects that are proven to be lost: a type of Python's, or
// memory without one.
func LossProven(p keeper.Proof, name string) string {
	objects := "sampled blocks"

	if name != "" {
		objects = "objects of type " + units.Name(name)
	}

	return fmt.Sprintf("LEAK (proven): nothing in the process refers to %d of %d %s", p.Lost, p.Of,
		objects)
}

// lostLine is who lost the memory, for WHERE; empty: it is not known, or nothing is lost.
func lostLine(l *summary.Lost) string {
	switch {
	case l == nil || l.Library == "":
		return ""
	case l.CallsPython:
		return "lost by the C code that calls that line, by way of " + takerText(l)
	case l.Caller != "":
		return "lost by " + takerText(l) + ", which " + l.Caller + " calls"
	}

	return "lost by " + takerText(l)
}

// takerText is the code of C that made or took the last reference: "PIL._imaging getpixel".
func takerText(l *summary.Lost) string {
	switch {
	case l.Function == "":
	case l.Type == "" && l.Caller == "" && !l.CallsPython: // of a program in C
		return l.Function + inParentheses(l.Library)
	default:
		return l.Library + " " + l.Function
	}

	return l.Library
}

// lostSteps are the remedies for memory that nothing refers to: %s is the code of C. The first that
// has room is taken.
var lostSteps = struct{ library, own, python, typed, native []string }{
	library: []string{
		"look for a missing Py_DECREF or free in %s; report it upstream",
		"look for a missing Py_DECREF or free in %s",
	},
	own: []string{"look for a missing Py_DECREF or free in %s"},
	python: []string{
		"look for a missing Py_DECREF in the C code that calls that line, by way of %s",
		"look for a missing Py_DECREF in the C code that calls that line",
	},
	typed: []string{
		"code of C does not release %s: look for a missing Py_DECREF",
		"look for a missing Py_DECREF of %s",
	},
	native: []string{
		"look for the missing free of what %s allocates", "find the free that %s lacks",
	},
}

// lostStep is the remedy for memory that nothing refers to.
func lostStep(l *summary.Lost) string {
	const room = ResultWidth - labelWidth - len("1. ")
	switch {
	case l == nil || l.Library == "" && l.Type == "":
		return "find the free that is missing: no variable has that memory any more"
	case l.Library == "":
		return fitted(lostSteps.typed, "objects of type "+l.Type, room)
	case l.CallsPython:
		return fitted(lostSteps.python, l.Library, room)
	case l.Type == "" && l.Caller == "":
		return fitted(lostSteps.native, cmp.Or(l.Function, "code")+inParentheses(l.Library), room)
	case strings.Contains(l.Library, ".so"): // no package of Python's: it may be the user's own
		return fitted(lostSteps.own, takerText(l), room)
	}

	return fitted(lostSteps.library, takerText(l), room)
}

// premises are why it is not known whether anything refers to objects.
var premises = map[keeper.Premise]string{
	keeper.PremiseSwapped:   "%s are swapped out",
	keeper.PremiseUnread:    "%s could not be read",
	keeper.PremiseBudget:    "the CPU time was used up",
	keeper.PremiseRegisters: "the registers of its threads could not be read",
	keeper.PremiseKernel:    "the kernel or a device may hold pointers that cannot be read",
	keeper.PremiseRuntime:   "the references of %s cannot be read",
}

// sweepLine is the finding of a sweep, or the premise that fails; empty: there was none.
func sweepLine(k *summary.Keeper) string {
	switch {
	case k.LostProven:
		return fmt.Sprintf("lost: nothing in the process refers to %d of %d, proven by two searches",
			k.Lost, max(k.Lost, k.Samples))

	case k.Lost > 0:
		return fmt.Sprintf("nothing in the process refers to %d of %d, by one search", k.Lost, k.Samples)

	case k.Unproven != keeper.PremiseHolds:
		text := premises[k.Unproven]

		switch k.Unproven {
		case keeper.PremiseSwapped, keeper.PremiseUnread:
			text = fmt.Sprintf(text, units.Bytes(float64(k.UnprovenBytes)))
		case keeper.PremiseRuntime:
			text = fmt.Sprintf(text, cmp.Or(k.Runtime, "its runtime"))
		}

		return "not known whether anything refers to them: " + text
	}

	return ""
}
