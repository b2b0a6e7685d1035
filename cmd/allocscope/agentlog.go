package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/fleet"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// logEvent logs an event of the agent, in a line.
func logEvent(e fleet.Event) {
	who := subjectOf(e)
	found := summary.VerdictOf(e.Verdict, summary.AxisSeconds)
	line := words.Headline(found)
	if limit := words.LimitLine(found, words.AtLimit); limit != "" {
		line += "; " + limit
	}

	switch e.Kind {
	case fleet.EventAppeared:
		slog.Info(fmt.Sprintf("%s: watched from now on, RSS %s", who, rssText(e.RSS)))
	case fleet.EventRestored:
		slog.Info(fmt.Sprintf("%s: watched on after the restart of the agent, RSS %s", who,
			rssText(e.RSS)))
	case fleet.EventExecuted:
		slog.Info(who + ": executes another program")
	case fleet.EventEnded:
		if e.OOM != nil {
			k := summary.OOMKillOf(*e.OOM, 0)
			slog.Warn(fmt.Sprintf("%s: killed by the kernel, out of memory: %s; %s", who,
				words.OOMState(&k), words.Name(found)))
			break
		}
		slog.Info(fmt.Sprintf("%s: ended at RSS %s; %s", who, rssText(e.RSS), words.Name(found)))
	case fleet.EventReplaced:
		slog.Warn(fmt.Sprintf("%s: not watched for now: a larger process, or one of an owner "+
			"with fewer places, has its place; %s", who, words.Name(found)))

	case fleet.EventTurned:
		level := slog.LevelInfo
		if e.Verdict.Class == verdict.ClassLeak || e.Verdict.Class == verdict.ClassSuspected {
			level = slog.LevelWarn
		}
		before := words.Name(summary.Verdict{Class: e.Before})
		slog.Log(context.Background(), level,
			fmt.Sprintf("%s: %s (before: %s)", who, line, before))
	case fleet.EventNearLimit:
		slog.Warn(who + ": " + line)

	case fleet.EventFull:
		limit := words.LimitName(summary.Limit{
			Of: e.Headroom.Of, Bytes: e.Headroom.Bytes, HeadroomBytes: e.Headroom.Left,
		})
		slog.Warn(fmt.Sprintf("%s: memory is nearly used up: RSS %s, with all others %s (%s)", who,
			rssText(e.RSS), units.WholePercent(float64(e.Used)/float64(e.Limit)), limit))
	case fleet.EventTraceStarted:
		slog.Info(fmt.Sprintf("%s: tracing into %s", who, e.Folder))
	case fleet.EventTraceLine:
		slog.Info(fmt.Sprintf("%s: trace: %s", who, e.Line))
	case fleet.EventTraceDone:
		slog.Info(fmt.Sprintf("%s: traced: %s; %s", who, e.Result, e.Folder))
	case fleet.EventTraceFailed:
		slog.Error(fmt.Sprintf("%s: trace into %s: %s", who, e.Folder, inOneLine(e.Err)))
	case fleet.EventTraceRefused:
		slog.Info(fmt.Sprintf("%s: not traced for another %s: too soon after the last trace", who,
			units.Duration(e.Wait.Round(time.Second))))
	case fleet.EventTraceStuck:
		slog.Error(fmt.Sprintf("%s: the trace into %s does not end, although it was interrupted: "+
			"there are no other traces until it does", who, e.Folder))

	case fleet.EventFolderGone:
		slog.Info("removed " + e.Folder + ", the oldest")
	case fleet.EventStateDamaged:
		slog.Error(fmt.Sprintf("the state is damaged, and is at %s now: all begins again: %s", e.Folder,
			inOneLine(e.Err)))
	case fleet.EventCrowded:
		slog.Warn(fmt.Sprintf("more than %d processes match: the others are ignored", fleet.MaxWatched))
	case fleet.EventError:
		slog.Error(inOneLine(e.Err))
	}
}

// subjectOf names the process of an event.
func subjectOf(e fleet.Event) string {
	who := fmt.Sprintf("PID %d", e.PID)
	if e.Command != "" {
		who += " (" + units.Name(e.Command) + ")"
	}

	if e.Identity.Rank >= 0 {
		who = fmt.Sprintf("rank %d, %s", e.Identity.Rank, who)
	}

	if e.Identity.Job != "" {
		who = fmt.Sprintf("job %s, %s", units.Name(e.Identity.Job), who)
	}

	return who
}

// inOneLine is an error, which may be of several, in a line.
func inOneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func rssText(bytes int64) string {
	if bytes == growth.Unknown {
		return "unknown"
	}

	return units.Bytes(float64(bytes))
}
