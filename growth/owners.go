package growth

// Owners tell whose memory a stack holds, by an ordered list of rules.
type Owners struct{}

// Of is the owner of a stack.
func (o *Owners) Of(s *Stack) string { return Owner(s) }
