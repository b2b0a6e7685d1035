package bundle

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/summary"
)

// TestEveryText fills each text of a summary with a secret.
func TestEveryText(t *testing.T) {
	t.Parallel()
	s := &summary.Summary{}
	kept := map[string]bool{ // what allocscope and the kernel say, and no process
		"Version": true, "Kernel": true, "Architecture": true, "StackIDs": true, "StackID": true,
		"Name of GPU": true,
	}

	count := 0
	for i, text := range []string{
		"okapi", "/srv/okapi quagga/zebu.py", "okapi (/srv/quagga.py:3)", "[okapi: /zebu]",
		"okapi.quagga",
		"the okapi of the quagga", "memory-okapi", "x (okapi.py)", "std::map<okapi, int>::at(zebu)",
		"--okapi=quagga", "'okapi'", "/memfd:okapi (deleted)", "<okapi>", "okapi+0x12", "OKAPI_TOKEN",
	} {
		if i == 0 {
			fill(reflect.ValueOf(s).Elem(), text, kept, &count)
		} else {
			fill(reflect.ValueOf(s).Elem(), text, kept, new(int))
		}

		n := newNames(nil)
		copied := *s
		n.summary(&copied)
		n.setLong()
		var out bytes.Buffer
		if err := copied.Write(&out); err != nil {
			t.Fatal(err)
		}

		if found := secret.FindAll(out.Bytes(), -1); found != nil {
			t.Errorf(
				"with %q in all texts %d remain:\n%s",
				text,
				len(found),
				linesWith(out.String()),
			)
		}
	}

	if count < 80 {
		t.Errorf("filled %d texts", count)
	}
}

func linesWith(text string) (found string) {
	for line := range strings.Lines(text) {
		if secret.MatchString(line) {
			found += line
		}
	}

	return found
}

// fill sets all texts below a value, and makes lists and pointers of one element.
func fill(v reflect.Value, text string, kept map[string]bool, count *int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		*count++
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, kept, count)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), text, kept, count)
		fill(v.Index(1), text, kept, count)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text, kept, count)
		fill(value, text, kept, count)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.IsExported() && !kept[field.Name] && !kept[field.Name+" of "+v.Type().Name()] {
				fill(v.Field(i), text, kept, count)
			}
		}
	}
}

// TestEveryTextOfAProfile has a secret in each text of a profile.
func TestEveryTextOfAProfile(t *testing.T) {
	t.Parallel()
	private := &pprof.Mapping{
		ID:                     1,
		File:                   "/opt/okapi/libquagga.so",
		KernelRelocationSymbol: "okapi",
	}
	function := func(id uint64, name, file string) *pprof.Function {
		return &pprof.Function{ID: id, Name: name, SystemName: name, Filename: file}
	}

	p := &pprof.Profile{
		Mapping: []*pprof.Mapping{private, {ID: 2, File: "/memfd:zebu (deleted)"}},
		Function: []*pprof.Function{
			function(1, "okapi::zebu<int>(char)", "/build/okapi.cc"),
			function(
				2,
				"okapi",
				"/home/quagga/okapi.py",
			), function(3, "[file: /data/okapi set.bin]", ""),
			function(
				4,
				"<okapi>",
				"<string>",
			), function(5, "okapi", ""), function(6, "okapi malloc", "<okapi>"),
		},
		Comments:   []string{"okapi", "source heap: open /home/quagga: no such file"},
		DropFrames: "okapi", KeepFrames: "okapi", DocURL: "http://okapi", DefaultSampleType: "okapi",
		SampleType: []*pprof.ValueType{{Type: "okapi", Unit: "quagga"}},
		PeriodType: &pprof.ValueType{Type: "okapi", Unit: "quagga"},
	}

	for i, f := range p.Function {
		l := &pprof.Location{ID: uint64(i + 1), Line: []pprof.Line{{Function: f, Line: 7}}}
		if i == 0 {
			l.Mapping = private
		}

		p.Location = append(p.Location, l)
	}

	p.Sample = []*pprof.Sample{{
		Location: p.Location, Value: []int64{3},
		Label: map[string][]string{
			"okapi": {"okapi"}, "component": {"okapi.py"}, "process": {"okapi"}, "kind": {"okapi"},
		},
		NumLabel: map[string][]int64{
			"okapi": {1},
		}, NumUnit: map[string][]string{"okapi": {"quagga"}},
	}}

	newNames(nil).profile(p)
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}

	if found := secret.FindAllString(p.String(), -1); found != nil {
		t.Errorf("the profile has %q:\n%s", found, p)
	}

	var out bytes.Buffer
	if err := p.WriteUncompressed(&out); err != nil {
		t.Fatal(err)
	}

	if found := secret.FindAllString(out.String(), -1); found != nil {
		t.Errorf("the file has %q", found)
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	n := newNames(nil)
	n.path("/usr/lib/python3/dist-packages/PIL/Image.py")
	n.command("gpu-node worker")
	for _, c := range []struct{ text, want string }{
		{"114 MiB (95% CI 122.4-126.5)", "114 MiB (95% CI 122.4-126.5)"},
		{"in 2.9 h at this rate (about 08:19)", "in 2.9 h at this rate (about 08:19)"},
		{"resize (Image.py:2192)", "name-1 (Image.py:2192)"},
		{"read 10.1.2.3:4040 and fe80::1", "read host-1 and host-2"},
		{"read /proc/self/pagemap", "read /proc/self/pagemap"},
		{"open /usr/lib/../../okapi/zebu.py", "open /folder-1/name-2.py"},
		{"/dev/shm/torch_*: read", "/dev/shm/torch_*: read"},
		{"such as /dev/shm and memfd:quagga", "such as /dev/shm and memfd:name-3"},
		{"try --duration 5m, not --zebu=3", "try --duration 5m, not name-4=3"},
		{"PID 7 (gpu-node worker)", "PID 7 (process-1)"},
		{"libcudart.so.12 of libokapi.so.2", "libcudart.so.12 of name-5.so.2"},
	} {
		n.setLong()
		if got := n.sentence(c.text, false); got != c.want {
			t.Errorf("%q became %q, want %q", c.text, got, c.want)
		}
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	n := newNames(nil)
	for _, c := range []struct{ mark, want string }{
		{"epoch 3", "epoch 3"},
		{"Epoch_end 12", "Epoch_end 12"},
		{"validation", "validation"},
		{"epoch 4 of okapi", "epoch 4 mark-1"},
		{"epoch 4 of okapi", "epoch 4 mark-1"},
		{"okapi epoch 3", "mark-2"},
		{"", ""},
	} {
		if got := n.mark(c.mark); got != c.want {
			t.Errorf("mark %q is %q, want %q", c.mark, got, c.want)
		}
	}
}

// FuzzSecret has a secret somewhere in a text that no rule keeps as a whole.
func FuzzSecret(f *testing.F) {
	f.Add("the ", " of it", "okapi_train.py")
	f.Add("open ", ": no such file", "/home/x/okapi")
	f.Add("", " (PID 3)", "okapi:trainer")
	f.Fuzz(func(t *testing.T, before, after, name string) {
		n := newNames(nil)
		text := before + " okapi" + name + " " + after
		if strings.Contains(text, "/") || strings.Contains(text, "<frozen ") {
			t.Skip() // folders of the system keep their files
		}

		for _, got := range []string{
			n.sentence(text, false), n.sentence(text, true), n.frame(text), n.root(text),
			n.root("[" + text + "]"),
			n.command(text), n.component(text), n.fileName(text), n.function(text, false), n.mark(text),
			n.path(text), n.typeName("okapi" + name),
		} {
			if strings.Contains(got, "okapi") {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}
