package duty

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestTable(t *testing.T) {
	var whole float64
	inside := make(map[Task]float64)
	for task, row := range Table {
		hasWords := row.Name != "" && row.Without != "" && row.Said != ""
		if !hasWords || row.Part <= 0 || row.Most < row.Part {
			t.Errorf("row %d is not whole: %+v", task, row)
		}
		if row.In == none {
			whole += row.Part
		} else {
			inside[row.In] += row.Part
		}
	}
	if whole > 1+1e-9 {
		t.Errorf("the parts are %.3f of the limit", whole)
	}
	for task, parts := range inside {
		if parts > Table[task].Part {
			t.Errorf("%s: the parts in it are %.3f, more than %.3f",
				Table[task].Name, parts, Table[task].Part)
		}
	}

	page := tracertest.Must(os.ReadFile("../../../docs/internals/budget.md"))(t)
	for _, row := range Table {
		if line := lineOf(row); !strings.Contains(string(page), line+"\n") {
			t.Errorf("docs/internals/budget.md lacks %s", line)
		}
	}
}

// lineOf is the line of the page about a row.
func lineOf(r Row) string {
	part := fmt.Sprintf("%g%%", 100*r.Part)
	if r.In != none {
		part += " in " + Table[r.In].Name
	}
	advance, yields := "", ""
	if r.Advance > 0 {
		advance = fmt.Sprintf("%g s", r.Advance.Seconds())
	}
	if r.Yields {
		yields = "yes"
	}
	return fmt.Sprintf("| %s | %s | %g%% | %s | %s | %s | %s |",
		r.Name, part, 100*r.Most, advance, yields, r.Without, r.Said)
}

// A greedy job runs all tasks of so many targets whenever they are allowed, for an hour, and says
// once a second how much that has taken. It returns the cores that the tasks have taken in the
// second half.
func greedyJob(limit float64, targets int) (cores float64) {
	const length, longest = time.Hour, 50 * time.Millisecond
	b := NewBudget(limit)
	var once time.Duration // that all tasks may take in advance
	for _, row := range Table {
		once += row.Advance
	}
	var spent, half time.Duration
	for elapsed := time.Duration(0); elapsed < length; elapsed += time.Second {
		b.Set(Use{limit, max(0, spent-once).Seconds() / max(1, elapsed.Seconds())})
		// Readings have no limiter: they take their part.
		spent += time.Duration(Table[Readings].Part * limit * float64(time.Second))
		for task, row := range Table {
			for target := range targets {
				account := b.Account(Task(task))
				hasLimiter := row.In == none && Task(task) != Readings
				if !hasLimiter || !account.Allowed(start.Add(elapsed)) {
					continue
				}
				cost := longest / time.Duration(1+(task+target)%7)
				account.Spend(cost)
				spent += cost
			}
		}
		if elapsed == length/2 {
			half = spent
		}
	}
	return (spent - half).Seconds() / (length / 2).Seconds()
}

func TestBudget(t *testing.T) {
	for _, limit := range []float64{0.005, 0.02, 0.3} {
		for _, targets := range []int{1, 16} {
			if cores := greedyJob(limit, targets); cores > 1.02*limit || cores < 0.7*limit {
				t.Errorf("%d targets with a limit of %g take %.4f of a core", targets, limit, cores)
			}
		}
	}
}

func TestUse(t *testing.T) {
	row := Table[Objects]
	for name, c := range map[string]struct {
		use  Use
		want float64
	}{
		"no limit":       {Use{0, 0.5}, row.Most * DefaultCores},
		"time to lend":   {Use{0.1, 0.07}, row.Most * 0.1},
		"little is left": {Use{0.1, 0.09}, row.Part * 0.1},
		"above":          {Use{0.1, 0.11}, row.Part * 0.01},
		"tiny":           {Use{1e-9, 0}, row.Most * minCores},
	} {
		if got := c.use.Share(Objects); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %g of a core, want %g", name, got, c.want)
		}
	}
	if got := (Use{0.1, 0.11}).Share(Names); math.Abs(got-Table[Names].Part*0.1) > 1e-12 {
		t.Errorf("names, above: %g of a core", got)
	}
}

func TestAccount(t *testing.T) {
	var none Account
	none.Spend(time.Hour)
	if !none.Allowed(start) || none.Rest(start) != 0 || none.Credit() <= 0 ||
		none.Accrue(start) <= 0 || !math.IsInf(none.Share(), 1) {
		t.Error("an account without a budget has a limit")
	}

	b := NewBudget(0.02)
	b.Account(Names).Spend(Table[Names].Advance + time.Second)
	if b.Account(Names).Allowed(start) || b.Account(Names).Credit() != -time.Second {
		t.Error("two accounts of a task are not the same")
	}
	if rest := b.Account(Names).Rest(start); rest != 200*time.Second {
		t.Errorf("rests %v for 1 s, want 200 s of 0.25 of 0.02 of a core", rest)
	}
	if !b.Account(Liveness).Allowed(start) {
		t.Error("one task has used up the time of another")
	}
	b.Set(Use{math.NaN(), 1})
	if b.Account(Names).Share() != Table[Names].Most*0.02 {
		t.Error("a limit that is no number is taken")
	}
}
