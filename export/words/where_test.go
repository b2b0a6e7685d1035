package words

import (
	"testing"

	"github.com/allocscope/allocscope/export"
)

func TestAShortPlaceBeginsWithTheCodeOfPython(t *testing.T) {
	a := export.Accumulation{
		Function: "grab", Module: "/lib/_imaging.so", Kind: "heap",
		Stack: []string{"grab (/lib/_imaging.so)", "new (/usr/lib/Image.py:7)", "load (/srv/train.py:47)", "main (/srv/train.py:60)", "<module> (/srv/train.py:99)"},
	}
	if got, want := WhereShort(a), "new (Image.py:7) < load (train.py:47) < main (train.py:60)"; got != want {
		t.Errorf("reads %q, want %q", got, want)
	}
	a.Stack = []string{"grab (/lib/libx.so)", "leak (/bin/x)"}
	if got, want := WhereShort(a), "grab < leak"; got != want {
		t.Errorf("reads %q, want %q", got, want)
	}
}
