package growth

import "sync"

// maxNames bounds the names that a nameTest remembers.
const maxNames = 1 << 14

// A nameTest asks a question about a name once. A trace asks for the same names of functions again
// with each judgement, and an expression takes microseconds for each.
type nameTest struct {
	ask func(name string) bool

	mu      sync.Mutex
	answers map[string]bool
}

// of returns the answer for a name.
func (t *nameTest) of(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, ok := t.answers[name]
	if ok {
		return answer
	}
	if t.answers == nil || len(t.answers) >= maxNames {
		t.answers = make(map[string]bool)
	}
	answer = t.ask(name)
	t.answers[name] = answer
	return answer
}
