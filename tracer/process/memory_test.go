package process

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemoryIsReadAsItIs(t *testing.T) {
	memory := []byte("what the process holds")
	got := make([]byte, 11)
	if err := openSelf(t).ReadMemory(addressOf(memory)+5, got); err != nil || string(got) != "the process" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNothingIsReadFromAnyAddress(t *testing.T) {
	if err := openSelf(t).ReadMemory(0, nil); err != nil {
		t.Error(err)
	}
}

func TestMemoryThatIsNotAllThereIsAnError(t *testing.T) {
	memory, page := peekMemory(t, 3)[pageBytes:], pageBytes
	p, end := openSelf(t), addressOf(memory)+uint64(page)
	for name, c := range map[string]struct {
		address uint64
		size    int
		want    error
	}{
		"all of it is readable":     {end - 8, 8, nil},
		"its end is not":            {end - 8, 9, errShortRead},
		"none of it is":             {end, 8, unix.EIO},
		"the null pointer":          {0, 8, unix.EIO},
		"an address of the kernel":  {^uint64(0) - 7, 8, unix.EINVAL},
		"an address that is absurd": {1 << 62, 8, unix.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.ReadMemory(c.address, make([]byte, c.size)); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}
