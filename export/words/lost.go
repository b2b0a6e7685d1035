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
		if l.Function == "" {
			return fitted(lostSteps.native, "code of "+l.Library, room)
		}
		return fitted(lostSteps.native, l.Function+inParentheses(l.Library), room)
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

// waits are the events that garbage waits for, and the remedies.
var waits = map[keeper.WaitFor]struct{ text, step string }{
	"": {
		"waits for gc", "call gc.collect() now and then, or break the cycles of references",
	},
	keeper.WaitEnable: {
		"gc.disable() is in force",
		"call gc.enable(), or gc.collect() now and then; or break the cycles of references",
	},
	keeper.WaitThreshold0: {
		"gc.set_threshold(0) has turned gc off",
		"call gc.set_threshold(700, 10, 10), or gc.collect() now and then",
	},
	keeper.WaitUnfreeze: {
		"gc.freeze() keeps gc from it",
		"call gc.unfreeze() and gc.collect(); before each gc.freeze(), call gc.collect()",
	},
	keeper.WaitUpgrade: {
		"gc of Python 3.14.0 to 3.14.4 gets to it late",
		"upgrade to Python 3.14.5 or later, or call gc.collect() now and then",
	},
	keeper.WaitThresholds: {
		"waits for the thresholds of gc",
		"lower the thresholds of gc.set_threshold(), or call gc.collect() now and then",
	},
	keeper.WaitQuarter: {
		"waits until a quarter of all objects is new",
		"call gc.collect() now and then, or break the cycles of references",
	},
}

// waitOf is the event that the garbage of a keeper waits for.
func waitOf(k *summary.Keeper) keeper.Wait {
	if k == nil || k.Waits == nil {
		return keeper.Wait{}
	}
	return *k.Waits
}

// waitText is the event that garbage waits for, in a few words.
func waitText(k *summary.Keeper) string {
	w := waitOf(k)
	if text := waits[w.For].text; text != "" {
		return text
	}
	return waits[""].text
}

// garbageStep is the remedy for garbage.
func garbageStep(k *summary.Keeper) string {
	if step := waits[waitOf(k).For].step; step != "" {
		return step
	}
	return waits[""].step
}

// garbageLines are the proof that the growth is garbage, with the numbers of its wait, and the call
// that decides.
func garbageLines(s *summary.Summary) []string {
	k := s.MainKeeper()
	if k == nil {
		return Certainty(s.Verdict)
	}

	text := fmt.Sprintf("no variable leads to %d of %d samples, only their own cycles", k.Garbage, k.Samples)
	return present(text, waitNumbers(waitOf(k)),
		"decided by gc.collect(): it frees them, unless code of C holds them")
}

// waitNumbers are the numbers of a wait; empty: it has none.
func waitNumbers(w keeper.Wait) string {
	switch {
	case w.For == keeper.WaitThresholds && len(w.Thresholds) == 3:
		return fmt.Sprintf("gc.set_threshold(%d, %d, %d): %s new objects so far", w.Thresholds[0],
			w.Thresholds[1], w.Thresholds[2], units.Thousands(int64(w.Count)))
	case w.For == keeper.WaitQuarter:
		return fmt.Sprintf("a full collection waits for %s new long-lived objects: %s so far",
			units.Thousands(w.LongLived/4), units.Thousands(w.Pending))
	}
	return ""
}
