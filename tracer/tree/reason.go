package tree

import (
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// maxWords bounds how much of a command line is quoted, in runes.
const maxWords = 60

// subject begins a sentence: which process the user has named.
func (f focus) subject() string {
	if f.root == nil {
		return ""
	}
	return fmt.Sprintf("PID %d is `%s`; ", f.root.PID, quote(*f.root))
}

// because says why those are chosen. There is nothing to say of a root that is traced as it was asked for.
func (f focus) because(chosen []Candidate) string {
	kept := chosen[:min(len(chosen), f.room())]
	if len(kept) == 0 || len(kept) == 1 && kept[0].Root {
		return ""
	}
	left := ""
	if n := len(chosen) - len(kept); n > 0 {
		left = fmt.Sprintf(" (%d more are left out)", n)
	}
	if len(f.traced) > 0 {
		return "also tracing " + f.name(kept) + left
	}
	return f.subject() + "tracing " + f.name(kept) + left
}

// name tells which processes those are and what they hold.
func (f focus) name(chosen []Candidate) string {
	c := chosen[0]
	if len(chosen) > 1 {
		var sum int64
		for _, c := range chosen {
			sum += c.Private
		}
		return fmt.Sprintf("%d %ss, which hold %s together", len(chosen), c.Role, size(sum))
	}
	what := ""
	switch {
	case c.Role == growth.RoleRank:
		what = fmt.Sprintf(" (rank %d)", c.Rank)
	case !c.trains():
		what = fmt.Sprintf(" (%s)", c.Role)
	}
	return fmt.Sprintf("%s %d%s, which holds %s", f.relation(c), c.PID, what, size(c.Private))
}

func (f focus) relation(c Candidate) string {
	switch {
	case f.root == nil || c.Root:
		return "PID"
	case c.Parent == f.root.PID:
		return "its child"
	}
	return "its descendant"
}

// quote gives the beginning of a command line.
func quote(c Candidate) string {
	words := c.Command
	if len(c.Arguments) > 0 {
		words = strings.Join(c.Arguments, " ")
	}
	if runes := []rune(words); len(runes) > maxWords {
		words = string(runes[:maxWords-1]) + "…"
	}
	return words
}

// size writes bytes for people.
func size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
