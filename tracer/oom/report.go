package oom

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth"
)

const (
	maxLargest   = 5
	maxPathBytes = 256
	// groupTime is how long after a report the kernel kills the other processes of a cgroup with
	// memory.oom.group.
	groupTime = 10 * time.Second
	// maxPages bounds sizes, so that their sums do not overflow.
	maxPages = 1 << 40
)

// The lines of a report: dump_header, dump_task, dump_oom_victim and __oom_kill_process of
// https://github.com/torvalds/linux/blob/v6.13/mm/oom_kill.c, and mem_cgroup_print_oom_meminfo of
// mm/memcontrol.c. A command has 15 bytes at most, so that it cannot pretend to be a whole line.
var (
	invokedLine = regexp.MustCompile(`(?s)^.{0,15} invoked oom-killer: `)
	usageLine   = regexp.MustCompile(`^memory: usage (\d+)kB, limit (\d+)kB`)
	headLine    = regexp.MustCompile(`^\[ *pid *\] (.*)$`)
	taskLine    = regexp.MustCompile(`(?s)^\[ *(\d+)\] (.*)$`)
	chosenLine  = regexp.MustCompile(`(?s)^oom-kill:constraint=CONSTRAINT_[A-Z_]+,.*?,(?:(global_oom)|` +
		`oom_memcg=(.*)),task_memcg=(.*),task=.{0,15},pid=(\d+),uid=\d+$`)
	killedLine = regexp.MustCompile(`(?s)^(Memory cgroup out|Out) of memory[^:]*: Killed process (\d+) ` +
		`\((.{0,15})\) total-vm:\d+kB, anon-rss:(\d+)kB, file-rss:(\d+)kB, shmem-rss:(\d+)kB`)
	groupLine = regexp.MustCompile(`(?s)^Tasks in .* are going to be killed due to memory\.oom\.group set`)
)

// A parser reads the records of the log one by one. Records of other parts of the kernel may lie
// between the lines of a report.
type parser struct {
	report  growth.OOMKill // so far: all but the killed process
	columns []string       // of its table; nil: it has not begun
	isNew   bool           // it has killed no process yet
	isGroup bool           // the kernel kills the whole cgroup
}

// add adds a record, and returns the kill that it ends.
func (p *parser) add(record string) (kill growth.OOMKill, ok bool) {
	line, at, ok := kernelLine(record)
	if !ok {
		return kill, false
	}

	if invokedLine.MatchString(line) {
		*p = parser{isNew: true, report: noReport()}
		return kill, false
	}
	if m := killedLine.FindStringSubmatch(line); m != nil {
		return p.killed(m, at), true
	}
	p.addToReport(line)
	return kill, false
}

func noReport() growth.OOMKill {
	return growth.OOMKill{Used: growth.Unknown, Limit: growth.Unknown}
}

// addToReport adds a line that stands before the one with the killed process.
func (p *parser) addToReport(line string) {
	if m := usageLine.FindStringSubmatch(line); m != nil {
		p.report.Used, p.report.Limit = kibibytes(m[1]), kibibytes(m[2])
		return
	}
	if m := headLine.FindStringSubmatch(line); m != nil {
		p.columns = strings.Fields(m[1])
		return
	}
	if m := chosenLine.FindStringSubmatch(line); m != nil {
		p.report.OfMachine, p.report.Cgroup, p.report.Own = m[1] != "", path(m[2]), path(m[3])
		return
	}
	if m := taskLine.FindStringSubmatch(line); m != nil {
		p.addTask(m[2])
		return
	}
	p.isGroup = p.isGroup || groupLine.MatchString(line)
}

// addTask adds a row of the table. The name is its last column, and may have spaces.
func (p *parser) addTask(row string) {
	n := len(p.columns)
	if n == 0 || p.columns[n-1] != "name" {
		return
	}

	task := growth.OOMTask{}
	for _, column := range p.columns[:n-1] {
		value, rest, _ := strings.Cut(strings.TrimLeft(row, " "), " ")
		switch row = rest; column {
		case "tgid":
			task.PID, _ = strconv.Atoi(value)
		case "rss":
			task.RSS = min(number(value), maxPages) * int64(os.Getpagesize())
		}
	}
	task.Command = growth.Printable(row)
	if task.PID == 0 {
		return
	}

	p.report.Count++
	p.report.Largest = append(p.report.Largest, task)
	slices.SortStableFunc(p.report.Largest, func(a, b growth.OOMTask) int {
		return cmp.Compare(b.RSS, a.RSS)
	})
	p.report.Largest = p.report.Largest[:min(len(p.report.Largest), maxLargest)]
}

// killed returns the kill of a process. The kernel writes at most ten reports in five seconds: a
// kill without one says only who was killed.
func (p *parser) killed(m []string, at time.Duration) growth.OOMKill {
	kill := noReport()
	if p.isNew || p.isGroup && at-p.report.At < groupTime {
		kill = p.report
		kill.Largest = slices.Clone(kill.Largest)
	}
	p.report.At, p.isNew, p.columns = at, false, nil

	kill.At, kill.OfMachine = at, m[1] == "Out"
	kill.PID, _ = strconv.Atoi(m[2])
	kill.Command = growth.Printable(m[3])
	kill.Anonymous, kill.File, kill.Shared = kibibytes(m[4]), kibibytes(m[5]), kibibytes(m[6])
	return kill
}

// kernelLine returns the text of a record that the kernel itself has written, with its time. The
// facility of all records of programs is another one.
func kernelLine(record string) (line string, at time.Duration, ok bool) {
	// level and facility, number, microseconds, flags; text
	prefix, text, ok := strings.Cut(record, ";")
	fields := strings.Split(prefix, ",")
	if !ok || len(fields) < 3 {
		return "", 0, false
	}
	const levelBits = 3 // https://datatracker.ietf.org/doc/html/rfc5424#section-6.2.1
	priority, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil || priority>>levelBits != 0 {
		return "", 0, false
	}
	microseconds, err := strconv.ParseInt(fields[2], 10, 53)
	if err != nil || microseconds < 0 {
		return "", 0, false
	}

	line, _, _ = strings.Cut(text, "\n") // keys and values of a device follow
	return unescape(line), time.Duration(microseconds) * time.Microsecond, true
}

var escape = regexp.MustCompile(`\\x[0-9a-f]{2}`)

// unescape undoes the escapes of bytes that are not printable.
func unescape(line string) string {
	return escape.ReplaceAllStringFunc(line, func(e string) string {
		b, _ := strconv.ParseUint(e[2:], 16, 8)
		return string([]byte{byte(b)})
	})
}

func path(text string) string { return growth.Truncate(growth.Printable(text), maxPathBytes) }

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// kibibytes returns a size in bytes.
func kibibytes(text string) int64 { return min(number(text), maxPages) << 10 }
