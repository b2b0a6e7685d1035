package words

import (
	"cmp"
	"fmt"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/keeper"
)

// lostText is the proof of a leak: nothing refers to what grows.
func lostText(v summary.Verdict) string {
	l := v.Lost
	if l == nil {
		return "proven: nothing in the process refers to what grows"
	}
	return fmt.Sprintf("proven: nothing in the process refers to %d of %d %s of several ages "+
		"that are alive, twice, %s apart", l.Samples, l.Of, lostObjects(l), clockText(l.ApartS))
}

// LossProven is the log's line about objects that are proven to be lost: a type of Python's, or
// memory without one.
func LossProven(p keeper.Proof, name string) string {
	l := &summary.Lost{Type: units.Name(name)}
	return fmt.Sprintf("LEAK (proven): nothing in the process refers to %d of %d %s", p.Lost, p.Of,
		lostObjects(l))
}

// lostObjects names objects that are lost.
func lostObjects(l *summary.Lost) string {
	if l.Type != "" {
		return "objects of type " + l.Type
	}
	return "sampled blocks"
}

// lostLine is who lost the memory, for WHERE; empty: it is not known, or nothing is lost.
func lostLine(l *summary.Lost) string {
	if l == nil || l.Library == "" {
		return ""
	}
	return "lost in " + takerText(l)
}

// takerText is the code of C that made or took the last reference: "PIL._imaging (called by
// Image.getpixel)".
func takerText(l *summary.Lost) string {
	text := l.Library
	if l.Function != "" {
		text += " " + l.Function
	}
	if l.Caller != "" {
		text += " (called by " + l.Caller + ")"
	}
	return text
}

// lostStep is what to do about memory that nothing refers to.
func lostStep(l *summary.Lost) string {
	switch {
	case l == nil || l.Library == "" && l.Type == "":
		return "find the free that is missing: no variable has that memory any more"
	case l.Library == "":
		return "code of C does not release objects of type " + l.Type + ": look for a missing Py_DECREF"
	case l.Type == "" && l.Caller == "":
		return "look for a missing free in " + takerText(l)
	case l.Type == "":
		return "a C extension does not release it: look for a missing free in " + takerText(l) +
			"; report it upstream"
	}
	return "a C extension does not release it: look for a missing Py_DECREF in " + takerText(l) +
		"; report it upstream"
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

// lookLine is whether anything refers to the objects of a search, where that was looked for.
func lookLine(k *summary.Keeper) string {
	switch {
	case k.LostProven:
		return fmt.Sprintf("lost: nothing in the process refers to %d of %d, proven by two looks",
			k.Lost, max(k.Lost, k.Samples))
	case k.Lost > 0:
		return fmt.Sprintf("nothing in the process refers to %d of %d, by one look", k.Lost, k.Samples)
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
