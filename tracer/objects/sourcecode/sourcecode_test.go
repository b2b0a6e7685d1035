package sourcecode

import (
	"strings"
	"testing"
)

// Each program has a list named kept. The first ones only add to it.
func TestIsOnlyAddedTo(t *testing.T) {
	const head = "import x\nkept = []\n"
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"appended":       {head + "def f(y):\n    kept.append(y)  # kept[0]\n", true},
		"by key":         {"kept = {}\ndef f(k):\n    kept[k, 1] = k\n", true},
		"extended":       {head + "def f(y):\n    global kept\n    kept += [y]\n", true},
		"annotated":      {"kept: list[int] = []\nkept.append(1)\n", true},
		"in a docstring": {head + "def f(y):\n    \"\"\"Adds to kept.\"\"\"\n    kept.append(y)\n", true},
		"over lines":     {head + "kept.append(\n    1,\n\n    2)\n", true},
		"made by call":   {"import collections\nkept = collections.deque()\nkept.appendleft(1)\n", true},

		"read":            {head + "kept.append(len(kept))\n", false},
		"cleared":         {head + "kept.append(1)\nkept.clear()\n", false},
		"replaced":        {head + "while True:\n    kept = []\n    kept.append(1)\n", false},
		"made in a loop":  {"for e in x:\n    kept = []\n    kept.append(e)\n", false},
		"slice":           {head + "kept.append(1)\nkept[:] = []\n", false},
		"deleted":         {head + "kept.append(1)\ndel kept[0]\n", false},
		"bound method":    {head + "add = kept.append\n", false},
		"alias":           {head + "kept.append(1)\nother = kept\n", false},
		"passed on":       {head + "kept.append(1)\nx.trim(kept)\n", false},
		"in an f-string":  {head + "kept.append(1)\nprint(f'{kept}')\n", false},
		"nested f-string": {head + "kept.append(1)\nprint(f'{x['kept']}')\n", false},
		"by its name":     {head + "kept.append(1)\nx.read('kept')\n", false},
		"by reflection":   {head + "kept.append(1)\nglobals().clear()\n", false},
		"imported as":     {head + "kept.append(1)\nfrom main import kept as k\n", false},
		"another's":       {"kept = x.all\nkept.append(1)\n", false},
		"never made":      {"kept.append(1)\n", false},
		"not Python":      {head + "kept.append(1))\n", false},
		"without an end":  {head + "kept.append('1\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			var p Program
			p.Add("main.py", c.text)
			v := Variable{Scope: Global, Name: "kept", File: "main.py"}
			if got := p.IsOnlyAddedTo(v); got != c.want {
				t.Errorf("only added to: %t, in\n%s", got, c.text)
			}
		})
	}
}

const classText = `
class Meter:
    def __init__(self):
        self.kept = []

    def add(self, y):
        self.kept.append(y)

meter = Meter()
`

func TestAttribute(t *testing.T) {
	attribute := Variable{Scope: Attribute, Name: "kept"}
	global := Variable{Scope: Global, Name: "meter", File: "main.py"}
	for name, c := range map[string]struct {
		other         string
		only, setOnce bool
	}{
		"alone":               {"", true, true},
		"of the same name":    {"kept = 1\nprint(kept)\n", true, true},
		"used":                {"from main import meter\nmeter.add(1)\n", true, true},
		"read elsewhere":      {"import main\nprint(main.meter.kept)\n", false, true},
		"reset":               {"class M:\n    def reset(self):\n        self.kept = []\n", false, true},
		"by its attributes":   {"print(main.meter.__dict__, main.meter.kept.append(1))", false, false},
		"object set again":    {"import main\nmain.meter = 1\n", true, false},
		"object deleted":      {"import main\ndel main.meter\n", true, false},
		"a local of the name": {"def f():\n    meter = 1\n    return meter\n", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			var p Program
			p.Add("main.py", classText)
			p.Add("other.py", c.other)
			if got := p.IsOnlyAddedTo(attribute); got != c.only {
				t.Errorf("only added to: %t", got)
			}
			if got := p.IsSetOnce(global); got != c.setOnce {
				t.Errorf("set once: %t", got)
			}
		})
	}
}

func TestSetOnce(t *testing.T) {
	global := Variable{Scope: Global, Name: "meter", File: "main.py"}
	for name, more := range map[string]string{
		"assigned":      "meter = Meter()\n",
		"in a loop":     "for _ in x:\n    meter = Meter()\n",
		"as a variable": "for meter in x:\n    pass\n",
		"by with":       "with x as meter:\n    pass\n",
		"in a function": "def f():\n    global meter\n    meter = 1\n",
		"with another":  "meter, x = 1, 2\n",
		"within":        "print(meter := 1)\n",
		"deleted":       "del meter\n",
	} {
		t.Run(name, func(t *testing.T) {
			var p Program
			p.Add("main.py", classText+more)
			if p.IsSetOnce(global) {
				t.Errorf("set once, in\n%s", more)
			}
		})
	}
}

func TestClosure(t *testing.T) {
	const text = `
def outer():
    kept = []

    def inner(y):
        kept.append(y)

    return inner
`
	v := Variable{Scope: Closure, Name: "kept", Owner: "outer"}
	for more, want := range map[string]bool{
		"": true, "def other():\n    return kept\n": false,
		"def outer():\n    kept = []\n": false,
	} {
		var p Program
		p.Add("main.py", text+more)
		if got := p.IsOnlyAddedTo(v); got != want {
			t.Errorf("only added to: %t, with %q", got, more)
		}
	}
}

// Any text costs bounded work, and makes no panic.
func FuzzProgram(f *testing.F) {
	f.Add(classText)
	f.Add("kept = [\nkept[")
	f.Add("kept: x\nkept =")
	f.Add(strings.Repeat("(", 100) + "kept = f'{")
	f.Fuzz(func(t *testing.T, text string) {
		var p Program
		p.Add("main.py", text)
		for _, v := range []Variable{
			{Name: "kept", File: "main.py"},
			{Scope: Attribute, Name: "kept"},
			{Scope: Closure, Name: "kept", Owner: "f"},
		} {
			p.IsOnlyAddedTo(v)
			p.IsSetOnce(v)
		}
	})
}
