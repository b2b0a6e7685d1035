package bundle

import (
	"bytes"
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/doctor"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestEveryText fills each text of a summary with a secret.
func TestEveryText(t *testing.T) {
	t.Parallel()
	s := &summary.Summary{}
	kept := map[string]bool{ // words of allocscope and the kernel, and of no process
		"Version": true, "Kernel": true, "Architecture": true, "StackIDs": true, "StackID": true,
		"Name of GPU": true,
	}

	var count int
	for _, text := range []string{
		"okapi", "/srv/okapi quagga/zebu.py", "okapi (/srv/quagga.py:3)", "[okapi: /zebu]",
		"okapi.quagga",
		"the okapi of the quagga", "memory-okapi", "x (okapi.py)", "std::map<okapi, int>::at(zebu)",
		"--okapi=quagga", "'okapi'", "/memfd:okapi (deleted)", "<okapi>", "okapi+0x12", "OKAPI_TOKEN", "EOKAPI",
	} {
		count = 0
		fill(reflect.ValueOf(s).Elem(), text, kept, &count)

		r := newRedactor(nil, nil)
		copied := *s
		r.summary(&copied)
		var out bytes.Buffer
		tracertest.NoError(t, copied.Write(&out))

		if found := secret.FindAll(out.Bytes(), -1); found != nil {
			t.Errorf("with %q in all texts %d remain:\n%s", text, len(found), linesWith(out.String()))
		}
	}

	if count < 80 {
		t.Errorf("filled %d texts", count)
	}
}

// TestEveryField checks that each text of the documents is a code, or has a rule: a new field needs
// a decision.
func TestEveryField(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, of := range []reflect.Type{
		reflect.TypeFor[summary.Summary](), reflect.TypeFor[doctor.Report](),
	} {
		findTexts(t, of, of.Name(), found)
	}
	for field := range fieldRules {
		if !found[field] {
			t.Errorf("%s has a rule, and is in no document", field)
		}
	}
}

// findTexts finds the fields of a type that have texts. Other rules have command lines and the
// sentences.
func findTexts(t *testing.T, of reflect.Type, owner string, found map[string]bool) {
	t.Helper()
	for i := range of.NumField() {
		field := of.Field(i)
		name := owner + "." + field.Name
		is := field.Type
		for is.Kind() == reflect.Pointer || is.Kind() == reflect.Slice {
			is = is.Elem()
		}
		switch {
		case is == reflect.TypeFor[time.Time](), is == reflect.TypeFor[summary.ResultText](), found[name]:
		case field.Anonymous:
			findTexts(t, is, owner, found)
		case is.Kind() == reflect.Struct:
			found[name] = true
			findTexts(t, is, is.Name(), found)
		case is.Kind() == reflect.String, is.Kind() == reflect.Map:
			found[name] = true
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			isKnown := fieldRules[name] != nil || codes()[owner+"."+key] != nil ||
				field.Name == "CommandLine" || field.Name == "Arguments" ||
				is == reflect.TypeFor[map[growth.Kind]int64]()
			if !isKnown {
				t.Errorf("%s is no code, and has no rule", name)
			}
		}
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
		ID: 1, File: "/opt/okapi/libquagga.so", KernelRelocationSymbol: "okapi",
	}
	function := func(id uint64, name, file string) *pprof.Function {
		return &pprof.Function{ID: id, Name: name, SystemName: name, Filename: file}
	}

	p := &pprof.Profile{
		Mapping: []*pprof.Mapping{private, {ID: 2, File: "/memfd:zebu (deleted)"}},
		Function: []*pprof.Function{
			function(1, "okapi::zebu<int>(char)", "/build/okapi.cc"),
			function(2, "okapi", "/home/quagga/okapi.py"),
			function(3, "[file: /data/okapi set.bin]", ""), function(4, "<okapi>", "<string>"),
			function(5, "okapi", ""), function(6, "okapi malloc", "<okapi>"),
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
		NumLabel: map[string][]int64{"okapi": {1}}, NumUnit: map[string][]string{"okapi": {"quagga"}},
	}}

	newRedactor(nil, nil).profile(p)
	tracertest.NoError(t, p.CheckValid())

	if found := secret.FindAllString(p.String(), -1); found != nil {
		t.Errorf("the profile has %q:\n%s", found, p)
	}

	var out bytes.Buffer
	tracertest.NoError(t, p.WriteUncompressed(&out))

	if found := secret.FindAllString(out.String(), -1); found != nil {
		t.Errorf("the file has %q", found)
	}
}

// TestRowNames has the names of rows in all their forms.
func TestRowNames(t *testing.T) {
	t.Parallel()
	n := newPseudonyms(nil)
	n.frame("ImagingResize (/usr/lib/python3/dist-packages/PIL/_imaging.so)")
	n.frame("Image.resize (/usr/lib/python3/dist-packages/PIL/Image.py:2192)")
	n.frame("okapi (/srv/quagga.py:3)")
	for _, c := range []struct{ text, want string }{
		{"ImagingResize (_imaging.so) < Image.resize (Image.py:2192)", "ImagingResize (_imaging.so) < Image.resize (Image.py:2192)"},
		{"okapi (Image.py:7) < Image.resize (zebu.py:1)", "name-1 (Image.py:7) < name-3.name-4 (name-5.py:1)"},
		{"free but resident: main heap", "free but resident: main heap"},
		{"before tracing: zebu area", "before tracing: name-6"},
		{"free but resident: arena 0x7f00", "free but resident: arena 0x7f00"},
		{"other stacks", "other stacks"},
		{"unexplained", "unexplained"},
		{"/srv/okapi quagga.bin", "/srv/name-7.bin"},
		{"/srv/okapi.bin: mmap (libc.so.6) < zebu (quagga.py:3)", "/srv/name-1.bin: mmap (libc.so.6) < name-5 (name-2.py:3)"},
		{"memfd:okapi set: quagga", "memfd:name-8: name-2"},
		{"shared anonymous memory", "shared anonymous memory"},
		{"[stack not kept: too many frames]", "[stack not kept: too many frames]"},
		{"[stack not kept: okapi]", "name-9"},
		{"okapi: free but resident", "name-10"},
		{"cache < worker < epoch", "name-11 < name-12 < name-13"},
	} {
		if got := n.rowName(c.text); got != c.want {
			t.Errorf("%q became %q, want %q", c.text, got, c.want)
		}
	}
}

// Words that allocscope uses as well are replaced where they are names of the user.
func TestWordsOfTheUser(t *testing.T) {
	t.Parallel()
	s := &summary.Summary{
		Sources: []summary.Source{{Name: "heap", SourceFailure: growth.SourceFailure{
			Reason: growth.SourceOther, Detail: "open /srv/cache: permission denied",
		}}},
		Notes: []summary.Note{summary.ProcessNote(growth.Selection{
			Reason: growth.SelectionAsked, Traced: "python3 worker --host heap",
		})},
		GPUMemory: []summary.GPUMemory{{GPUUnknown: growth.GPUUnknown{
			Reason: growth.GPUOther, Detail: "the heap of the cache",
		}}},
		Overhead: &summary.Overhead{Changes: []summary.OverheadChange{{
			OverheadChange: growth.OverheadChange{Source: "worker", Error: "attach cache"},
		}}},
		Losses: []growth.Loss{{Kind: "cache", Cause: "worker"}},
	}
	newRedactor(nil, nil).summary(s)
	var out bytes.Buffer
	tracertest.NoError(t, s.Write(&out))
	if found := regexp.MustCompile(`cache|worker|denied|python3`).FindAllString(out.String(), -1); found != nil {
		t.Errorf("%q remain:\n%s", found, out.String())
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	n := newPseudonyms(nil)
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

// TestAttributes has attributes that a program has given to a public type, and the type's own
// attributes.
func TestAttributes(t *testing.T) {
	t.Parallel()
	const zebu, fields = "zebu_secret", "<name>"
	for _, c := range []struct{ holder, name, want string }{
		{"argparse.Namespace", zebu, fields},
		{"function", "okapi_cache", fields},
		{"type", zebu, fields},
		{"module", zebu, fields},
		{"object", zebu, fields},
		{"_thread._local", zebu, fields},
		{"functools.partial", zebu, fields},
		{"torch.nn.modules.module.Module", zebu, fields},
		{"torch.nn.modules.linear.Linear", "_buffers", "_buffers"},
		{"logging.Logger", zebu, fields},
		{"logging.Logger", "handlers", "handlers"},
		{"threading.Thread", zebu, fields},
		{"threading.Thread", "_kwargs", "_kwargs"},
		{"okapi.Quagga", "_buffers", fields},
	} {
		p := &keeper.Path{
			Root: keeper.Root{Kind: keeper.RootLocal, File: "/srv/okapi.py", Name: "quagga"},
			Links: []keeper.Link{
				{How: keeper.HowVariable, Type: c.holder, Readings: make([]keeper.Reading, 1)},
				{How: keeper.HowAttribute, Name: c.name, Type: "list"},
			},
		}
		newRedactor(nil, nil).document(p)
		if p.Links[0].Readings != nil {
			t.Error("addresses of the process")
		}
		got := pseudonymous.ReplaceAllString(p.Links[1].Name, fields)
		if text := words.KeeperPath(*p); got != c.want || secret.MatchString(text) {
			t.Errorf("%s of %s is %q in %q", c.name, c.holder, got, text)
		}
	}
}

var pseudonymous = regexp.MustCompile(`^name-[0-9]+$`)

// TestVariables has variables of public modules and files.
func TestVariables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		root keeper.Root
		want string
	}{
		{keeper.Root{Kind: keeper.RootGlobal, Module: "sys", Name: "modules"}, "modules"},
		{keeper.Root{Kind: keeper.RootGlobal, Module: "sys", Name: "okapi"}, "name-1"},
		{keeper.Root{
			Kind: keeper.RootClass, Module: "torch", Owner: "Tensor", Name: "okapi",
		}, "name-1"},
		{keeper.Root{
			Kind: keeper.RootLocal, Module: "json", File: "/usr/lib/python3.11/json/decoder.py",
			Owner: "decode", Name: "memo",
		}, "memo"},
		{keeper.Root{
			Kind: keeper.RootLocal, Module: "json", File: "/srv/okapi.py", Name: "memo",
		}, "name-2"},
	} {
		p := &keeper.Path{Root: c.root}
		newRedactor(nil, nil).document(p)
		if p.Root.Name != c.want {
			t.Errorf("%s of %s is %q, want %q", c.root.Name, c.root.Module, p.Root.Name, c.want)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ executable, first, want string }{
		{"/usr/bin/python3.11", "/usr/bin/python3", "/usr/bin/python3"},
		{"/usr/bin/python3.11", "/opt/venv/bin/python", "/opt/folder-1/bin/python"},
		{"/opt/okapi/trainer", "/opt/okapi/trainer", "/opt/folder-1/name-1"},
		{
			"/usr/share/code/code",
			"/usr/share/code/code --user-data-dir=/home/alice/acme-secret", "argument-1",
		},
		{"/usr/bin/python3.11", "/usr/bin/python3 /home/alice/acme/train.py --secret", "argument-1"},
		{"/usr/bin/python3.11", "/usr/lib/python3.11/json/decoder.py", "argument-1"},
		{"", "postgres: okapi 10.1.2.3(4040)", "argument-1"},
	} {
		arguments := []string{c.first, "10.20.30.40", "123456", "/usr/share/okapi.json"}
		r := newRedactor(nil, nil)
		r.arguments(arguments, c.executable)
		if arguments[0] != c.want || len(r.names.libraries) > 1 {
			t.Errorf("%q is %q, want %q", c.first, arguments[0], c.want)
		}

		rest := strings.Join(arguments[1:], " ")
		if !regexp.MustCompile(
			`^host-1 argument-[0-9]+ /usr/share/(name|folder)-[0-9]+\.json$`).MatchString(rest) {
			t.Errorf("the other arguments are %q", rest)
		}
	}

	title := "/usr/bin/python3 /home/alice/acme/train.py --secret"
	if got := newPseudonyms(nil).path(title); strings.Contains(got, "acme") ||
		strings.Contains(got, "secret") {
		t.Errorf("%q became %q", title, got)
	}
}

// ownFlags are some of allocscope's commands and flags.
var ownFlags = strings.Fields(`trace run --duration --job --push --push-user --limit --overhead --tolerable`)

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want string }{
		{"allocscope trace 4242 --duration 45s", "allocscope trace 4242 --duration 45s"},
		{
			"allocscope trace --job 987654321 --push 10.20.30.40:4040",
			"allocscope trace --job argument-1 --push host-1",
		},
		{
			"allocscope trace --push-user 123456 --duration=5m --limit 32GiB --overhead 3%",
			"allocscope trace --push-user argument-1 --duration=5m --limit 32GiB --overhead 3%",
		},
		{
			"allocscope trace --push-user=123456 --limit 10.20.30.40 --tolerable 10MiB/min 5",
			"allocscope trace --push-user=argument-1 --limit host-1 --tolerable 10MiB/min argument-2",
		},
		{"allocscope run --overhead off -- okapi", "allocscope run --overhead off argument-1 argument-2"},
	} {
		arguments := strings.Split(c.line, " ")
		newRedactor(nil, ownFlags).commandLine(arguments, 4242)
		if got := strings.Join(arguments, " "); got != c.want {
			t.Errorf("%q became\n%q, want\n%q", c.line, got, c.want)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, want string }{
		{"/usr/lib/acme-corp/projectx/engine.bin", "/usr/lib/folder-1/folder-2/name-1.bin"},
		{"/usr/lib/acme-corp/libz.so.1", "/usr/lib/folder-1/libz.so.1"},
		{"/usr/lib/x86_64-linux-gnu/libacme.so", "/usr/lib/x86_64-linux-gnu/name-1.so"},
		{"/usr/local/cuda-acme/lib64/libcudart.so.12", "/usr/local/folder-1/lib64/libcudart.so.12"},
		{
			"/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.99",
			"/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.99",
		},
		{
			"/opt/python3.11-acme/site-packages/torch/nn/x.py",
			"/opt/folder-1/site-packages/torch/nn/x.py",
		},
		{"/usr/lib/python3.11/acme/x.py", "/usr/lib/folder-1/folder-2/name-1.py"},
		{"/home/share/libc.so.6", "/home/user-1/libc.so.6"},
	} {
		if got := newPseudonyms(nil).path(c.file); got != c.want {
			t.Errorf("%s became %s, want %s", c.file, got, c.want)
		}
	}
}

// TestHiddenNames hides each package and library by the name that is printed, or by its file.
func TestHiddenNames(t *testing.T) {
	t.Parallel()
	const packages = "/opt/venv/lib/python3.11/site-packages/"
	for _, c := range []struct{ file, printed string }{
		{packages + "acme_core.cpython-311-x86_64-linux-gnu.so", "acme_core"},
		{packages + "acme-1.0-py3.11.egg/acme/x.py", "acme"},
		{packages + "acme/x.py", "acme"},
		{packages + "acme.libs/libacme-3f2a.so.3", "acme"},
		{"/usr/lib/libz.so.1.2.13", "/usr/lib/libz.so.1.2.13"},
	} {
		seen := newPseudonyms(nil)
		seen.path(c.file)
		printed := append(sortedKeys(seen.packages), sortedKeys(seen.libraries)...)
		if !slices.Equal(printed, []string{c.printed}) {
			t.Errorf("%s is printed as %q", c.file, printed)
		}

		top, _, _ := strings.Cut(strings.TrimPrefix(c.file, packages), "/")
		for _, hide := range []string{c.printed, cmp.Or(top, c.file)} {
			n := newPseudonyms([]string{hide, "nosuchname"})
			got := n.path(c.file)
			if strings.Contains(got, "acme") || strings.Contains(got, "libz") {
				t.Errorf("with --hide %s: %s", hide, got)
			}

			if unknown := n.unknownHidden(); !slices.Equal(unknown, []string{"nosuchname"}) {
				t.Errorf("with --hide %s: unknown are %q", hide, unknown)
			}
		}
	}

	if got := newPseudonyms([]string{"libacme.so"}).isHidden("libacme.so.3"); !got {
		t.Error("--hide libacme.so leaves libacme.so.3")
	}
}

// FuzzSecret has a secret somewhere in a text that no rule keeps as a whole.
func FuzzSecret(f *testing.F) {
	f.Add("the ", " of it", "okapi_train.py")
	f.Add("open ", ": no such file", "/home/x/okapi")
	f.Add("", " (PID 3)", "okapi:trainer")
	f.Fuzz(func(t *testing.T, before, after, name string) {
		n := newPseudonyms(nil)
		text := before + " okapi" + name + " " + after
		if strings.Contains(text, "/") || strings.Contains(text, "<frozen ") {
			t.Skip() // folders of the system keep their files
		}

		for _, got := range []string{
			n.frame(text), n.root(text), n.rowName(text), n.shortFrame(text),
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
