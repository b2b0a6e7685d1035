package growth

import "testing"

// Memory of two cgroups is never compared: where another limit becomes the nearest one, the first
// moment is of that cgroup.
func TestContainers(t *testing.T) {
	pod, job := func() *Container { return &Container{Cgroup: "/pod"} },
		func() *Container { return &Container{Cgroup: "/pod/job"} }
	moments := []*Container{nil, pod(), pod(), nil, job(), nil, job(), pod()}
	var c Containers
	for i, want := range []struct{ first, last int }{
		{0, 0}, {1, 1}, {1, 2}, {1, 2}, {4, 4}, {4, 4}, {4, 6}, {7, 7},
	} {
		c.Add(moments[i])
		if c.First != moments[want.first] || c.Last != moments[want.last] {
			t.Errorf("after moment %d: %+v to %+v, want moments %+v", i, c.First, c.Last, want)
		}
	}
}
