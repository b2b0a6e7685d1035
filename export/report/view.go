package report

// A view is what the template shows: text alone, in the order of the page.
type view struct {
	Command, PID, Duration, Ended string
	// Started for people, StartedISO for machines.
	Started, StartedISO string
	Sections            []section
	Verdict             verdictView
	// Facts are the numbers that people look for first: rate, time to the limit, RSS at start and end.
	Facts        []fact
	Culprits     []culpritView
	Advice       []string
	HasTimeline  bool
	TimelineText string
	Phases       []phaseRow
	// Books are the ledger of the process, then that of its tree where there are others.
	Books    []bookView
	Rows     []rowView
	RowsNote string
	// InWindows: the rows of heap memory are known from windows.
	InWindows bool
	// Devices is the device memory of processes that have any.
	Devices       []deviceView
	HasFlame      bool
	FlameNote     string
	Processes     []processView
	Groups        []string
	Warnings      []string
	Sources       []sourceView
	Limits        []string
	CommandLine   string
	Setup         []fact
	PprofCommands string
}

type section struct{ ID, Title string }

// A verdictView is the verdict as a heading: Name is "LEAK", Sentence what follows it.
type verdictView struct {
	Class, Name, Sentence string
	Lines                 []string
}

type fact struct{ Name, Value, Note string }

type culpritView struct{ Share, Owner, Where string }

type phaseRow struct{ From, To, What, Rate string }

// A bookView is a ledger as a waterfall: the first line is what was there at the boundary, the last what is there at the end.
type bookView struct {
	Title string
	Lines []bookLine
	Note  string
}

type bookLine struct {
	// Class is "total" of the first and the last line, "unexplained", or empty.
	Class, What, Growth, Error, End string
	Bar                             bar
}

// A bar lies in 1000 by 20 units.
type bar struct {
	// Class is "total", "grown" or "shrunk".
	Class       string
	From, Width float64
	// Whisker is the path of the interval; empty: none.
	Whisker string
}

type rowView struct {
	Owner, Kind, Where                         string
	Stack                                      []frameView
	Rate, Interval, Share, Bytes, Objects, Age string
	RateValue, ShareValue, AgeValue            float64
	BytesValue, ObjectsValue                   int64
	// Trend in a word, and Spark its path in 100 by 24 units; empty: there are not two snapshots.
	Trend, Spark string
	// Doubt about the trend; empty: there is none.
	Doubt string
}

// A rowTable is a table of rows, and its name for those who do not see it.
type rowTable struct {
	Label string
	Rows  []rowView
}

// Table is what accumulates.
func (v *view) Table() rowTable { return rowTable{"What accumulates, as a table", v.Rows} }

// Table is what accumulates on the device.
func (v deviceView) Table() rowTable { return rowTable{"What accumulates, " + v.Title, v.Rows} }

// A frameView has the class "python", "native" or "root".
type frameView struct{ Class, Text string }

type processView struct{ PID, Role, Command, Traced, Seen, Start, End, Verdict string }

type sourceView struct{ Name, PID, State, Reason string }
