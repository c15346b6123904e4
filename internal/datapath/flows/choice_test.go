package flows

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/test/must"
)

// written is a file with the classifier that weir comes with, changed.
func written(t *testing.T, change func(*apps.Model)) string {
	t.Helper()
	model, err := apps.Shipped()
	must.Succeed(t, err)
	change(model)
	var data bytes.Buffer
	must.Succeed(t, model.Write(&data))
	path := filepath.Join(t.TempDir(), "classifier.json")
	must.Succeed(t, os.WriteFile(path, data.Bytes(), 0o600))
	return path
}

// nested is the JSON of a tree with so many tests on a path.
func nested(tests int) string {
	leaf := `{"weights":[1,0,0,0,0,0,0,0,0,0]}`
	tree := leaf
	for range tests {
		tree = fmt.Sprintf(`{"feature":"dst_port","at":1,"branches":[%s,%s]}`, leaf, tree)
	}
	return tree
}

// What is no classifier for the kernel is refused, with what to do.
func TestLoadRefuses(t *testing.T) {
	good, err := os.ReadFile(written(t, func(*apps.Model) {}))
	must.Succeed(t, err)
	stage := func(feature, tree string) string { return fmt.Sprintf(`{"features":[%q],"trees":[%s]}`, feature, tree) }
	model := func(first, second string) string {
		return fmt.Sprintf(`{"format":1,"types":["VOIP","GAME","SERVICES","CHAT","MULTIMEDIA","WEB","INTERACTIVE","EMAIL","BULK","P2P"],"stages":[%s,%s]}`, first, second)
	}
	plain := stage("dst_port", nested(1))
	for name, test := range map[string]struct{ data, want string }{
		"empty":                {"", "is cut off"},
		"cut off":              {string(good[:len(good)/2]), "is cut off: write it again"},
		"not JSON":             {"WTR1\x00\x01", "invalid character 'W' looking for beginning of value: is it a file that weir classify train wrote?"},
		"of another version":   {`{"format":9}`, "its format is 9"},
		"one stage":            {strings.Replace(model(plain, plain), ","+plain+"]", "]", 1), "it has 1 stages, want 2"},
		"no trees":             {model(`{"features":["dst_port"],"trees":[]}`, plain), "stage 1 has no trees"},
		"too deep":             {model(stage("dst_port", nested(33)), plain), "deeper than 32 tests: train with a smaller --max-depth"},
		"far too deep":         {model(stage("dst_port", nested(500)), plain), "deeper than 32 tests"},
		"an unknown feature":   {model(stage("colour", nested(1)), plain), "colour"},
		"not in the kernel":    {model(plain, stage("longest_gap_us", strings.ReplaceAll(nested(1), "dst_port", "longest_gap_us"))), "asks for longest_gap_us, which the kernel does not measure"},
		"a node without parts": {model(stage("dst_port", `{"feature":"dst_port","at":1,"branches":[]}`), plain), "stage 1, tree 1"},
		"a missing node":       {model(stage("dst_port", "null"), plain), "a node is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "classifier.json")
			must.Succeed(t, os.WriteFile(path, []byte(test.data), 0o600))
			if _, err := Load(path, nil, nil); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %s: %q", err, path, test.want)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.json"), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := Load("", []string{"P2P=GOLD"}, nil); err == nil {
		t.Error("a level that is none is taken")
	}
}

// A classifier is put in place of the one in force; when the kernel cannot have it,
// that one stays, and is what users see.
func TestUse(t *testing.T) {
	low := 0.9
	file, err := Load(written(t, func(*apps.Model) {}), nil, nil)
	must.Succeed(t, err)
	other, err := Load("", []string{"P2P=AF"}, &low)
	must.Succeed(t, err)
	kernel := &memory{tables: map[uint16]int{}}
	m := New(kernel, 0)
	if err := m.Use(file); err != nil || len(kernel.classifiers) != 0 {
		t.Fatalf("before anybody needs one the kernel has %d, %v", len(kernel.classifiers), err)
	}
	if got := m.InForce(); got.Source != file.about.Source || got.SHA256 == "" || !got.InForceSince.IsZero() {
		t.Errorf("shown before: %+v", got)
	}
	if err := m.Keep([]uint16{20}); err != nil || len(kernel.classifiers) != 1 {
		t.Fatalf("%d classifiers, %v", len(kernel.classifiers), err)
	}
	if got := m.InForce(); got.InForceSince.IsZero() || got.Nodes == 0 || got.Flows == 0 {
		t.Errorf("in force: %+v", got)
	}
	if err := m.Use(file); err != nil || len(kernel.classifiers) != 1 {
		t.Errorf("the same again: %d classifiers, %v", len(kernel.classifiers), err)
	}
	kernel.refuse = errors.New("no memory")
	if err := m.Use(other); err == nil || m.InForce().Source != file.about.Source {
		t.Errorf("refused with %v, in force is %+v", err, m.InForce())
	}
	kernel.refuse = nil
	for i, choice := range []Choice{other, {}} {
		if err := m.Use(choice); err != nil || len(kernel.classifiers) != 3+i || m.InForce().Source != builtIn {
			t.Errorf("%d classifiers, in force is %+v, %v", len(kernel.classifiers), m.InForce(), err)
		}
	}
	if got := kernel.classifiers[2]; got.MinConfidence != 58981 && got.MinConfidence != 58982 {
		t.Errorf("the least confidence is %d", got.MinConfidence)
	}
	if got := other.about.Levels; len(got) != 1 || got[0] != "P2P=AF" {
		t.Errorf("levels %v", got)
	}
}
