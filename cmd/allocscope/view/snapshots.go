package view

import (
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/allocscope/allocscope/export/folder"
)

// mostOpen bounds how many snapshots are kept in memory.
const mostOpen = 4

// snapshots are opened when somebody looks at one.
type snapshots struct {
	folder *folder.Folder
	source bool

	mu     sync.Mutex
	opened []openedSnapshot // the one that was looked at last comes last
}

type openedSnapshot struct {
	number int
	pages  http.Handler
}

// ServeHTTP serves the pages of the snapshot whose number is in the path.
func (s *snapshots) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseUint(r.PathValue("number"), 10, 31)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	s.pagesOf(int(number)).ServeHTTP(w, r)
}

func (s *snapshots) pagesOf(number int) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.opened, func(o openedSnapshot) bool { return o.number == number })
	var o openedSnapshot
	if i >= 0 {
		o = s.opened[i]
		s.opened = slices.Delete(s.opened, i, i+1)
	} else {
		opened, err := snapshotSubject(number).open(s.folder, s.source)
		if err != nil {
			return failed(err)
		}
		o = openedSnapshot{number, opened}
		s.opened = slices.Delete(s.opened, 0, max(0, len(s.opened)-mostOpen+1))
	}
	s.opened = append(s.opened, o)
	return o.pages
}

func snapshotSubject(number int) subject {
	n := strconv.Itoa(number)
	return subject{Path: "snapshots/" + n, Title: "snapshot " + n, File: folder.SnapshotFile(number)}
}
