package growth

import (
	"reflect"
	"testing"
)

func TestWorkersAreSummedByRoleByTheLatestReadingOfEach(t *testing.T) {
	var h History
	roles := map[int]Role{1: RoleTrainer, 2: RoleCompileWorker, 3: RoleCompileWorker, 4: RoleCompileWorker, 5: RoleOther}
	unread := func(rss int64) Sample { return Sample{RSS: rss, PSS: Unknown, Private: Unknown} }
	h.Add(seen(1, map[int]Sample{
		1: {RSS: 900, PSS: 900, Private: 900}, 2: {RSS: 400, PSS: 60, Private: 50}, 3: unread(410), 4: unread(420), 5: {RSS: 9, PSS: 8, Private: 7},
	}, roles))
	want := []Group{{Role: RoleOther, Count: 1, RSS: 9, PSS: 8, Private: 7}, {Role: RoleCompileWorker, Count: 3, RSS: 410, PSS: Unknown, Private: Unknown}}
	mustGroup(t, &h, want)
	h.Add(seen(2, map[int]Sample{
		1: unread(900), 2: unread(400), 3: {RSS: 410, PSS: 61, Private: 51}, 4: {RSS: 420, PSS: 62, Private: 52}, 5: unread(9),
	}, roles))
	want = []Group{{Role: RoleCompileWorker, Count: 3, RSS: 410, PSS: 183, Private: 153}, {Role: RoleOther, Count: 1, RSS: 9, PSS: 8, Private: 7}}
	mustGroup(t, &h, want)
	h.Add(seen(3, map[int]Sample{1: unread(900), 2: {RSS: 400, PSS: 70, Private: 60}}, roles))
	mustGroup(t, &h, []Group{{Role: RoleCompileWorker, Count: 1, RSS: 400, PSS: 70, Private: 60}})
	if got := h.Groups()[0].History; !reflect.DeepEqual(got, Series{X: []float64{2, 3}, Y: []float64{153, 60}}) {
		t.Errorf("history %+v, want the sums of the moments at which all had been read", got)
	}
}

func mustGroup(t *testing.T, h *History, want []Group) {
	t.Helper()
	got := h.Groups()
	for i := range got {
		got[i].History = Series{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("groups\n%+v, want\n%+v", got, want)
	}
}
