package tracer

import "time"

// AwaitTables waits until the files that are mapped now have their unwind tables.
func (s *Session) AwaitTables() { s.unwinder.tables.Wait(time.Minute) }
