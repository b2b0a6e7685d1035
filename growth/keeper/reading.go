package keeper

import "time"

// A Reading is the state of a container as a search has read it. Two readings at the same one show whether it grows,
// and whether it has lost any of its entries.
type Reading struct {
	Address uint64  `json:"address"`
	Entries Entries `json:"entries"`
	// Marks are some entries by their place: the oldest ones, and fewer of the later ones. A
	// container without an order has none.
	Marks []Mark `json:"marks"`
}

// IsMarked reports whether a later reading can show that the container has lost no entry.
func (l *Reading) IsMarked() bool { return len(l.Marks) >= minMarks }

// A Mark is an entry of a container, by its place and the address of the item or key there.
type Mark struct {
	Place int64  `json:"place"`
	Value uint64 `json:"value"`
}

// minMarks is how many of the old entries must be at their places for a container to have lost none.
// Where a twentieth of the entries were removed at random, this many would stay in one case of four.
// An entry that is taken out of a list, or from the front, moves all that follow.
const minMarks = 24

// hasKept reports whether all entries that were marked are at their places, and as many as prove
// that hardly any entry was removed.
func (l *Reading) hasKept(now *Reading) bool {
	places := make(map[int64]uint64, len(now.Marks))
	for _, m := range now.Marks {
		places[m.Place] = m.Value
	}

	for _, m := range l.Marks {
		if places[m.Place] != m.Value {
			return false
		}
	}

	return l.IsMarked()
}

// MarkPlaces are the places of a container of so many entries that are marked: the same ones in each
// reading, the first ones all, then ever fewer.
func MarkPlaces(entries int64) (places []int64) {
	const dense, part = 16, 6 // from then on each is a sixth farther
	for at := int64(0); at < entries; {
		places = append(places, at)
		at += max(1, (at-dense)/part)
	}
	return places
}

// compare sets the growth of the containers of a link, by earlier readings of all of them.
func (l *Link) compare(earlier map[readingKey]timedReading, after *Search) {
	gained, minutes, hasKept := Entries(0), 0.0, true

	for i := range l.Readings {
		now := &l.Readings[i]
		was, ok := earlier[readingKey{after.PID, after.TracedSince, now.Address, l.Type}]
		if !ok || now.Entries < 0 || after.Elapsed <= was.at {
			return
		}

		gained += now.Entries - was.Entries
		minutes = max(minutes, (after.Elapsed - was.at).Minutes())
		hasKept = hasKept && was.hasKept(now)
	}
	if len(l.Readings) == 0 {
		return
	}

	l.PerMinute = max(0, float64(gained)/minutes)
	l.Steady, l.AppendOnly = gained <= 0, gained > 0 && hasKept
	l.GrowthS = minutes * time.Minute.Seconds()
}

// A readingKey is a container of a program. Another one may come to lie at its address: of another type,
// most often.
type readingKey struct {
	pid     int
	since   time.Duration
	address uint64
	typ     string
}

type timedReading struct {
	*Reading
	at time.Duration
}

// readingsOf are the first readings of each container in some searches.
func readingsOf(searches []Search) map[readingKey]timedReading {
	readings := make(map[readingKey]timedReading)
	for i := range searches {
		s := &searches[i]
		for _, p := range s.Paths {
			for k := range p.Links {
				link := &p.Links[k]
				for n := range link.Readings {
					key := readingKey{s.PID, s.TracedSince, link.Readings[n].Address, link.Type}
					if was, ok := readings[key]; !ok || s.Elapsed < was.at {
						readings[key] = timedReading{&link.Readings[n], s.Elapsed}
					}
				}
			}
		}
	}
	return readings
}
