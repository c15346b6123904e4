package train

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/test/golden"
	"github.com/weir-project/weir/test/must"
)

// parts of the comparison with J48.
const parts = 5

// compared are the sets that both grow trees from, on the same parts.
func compared() map[string]*Set {
	plain := noisy(3, 600)
	wide := noisy(4, 1200)
	for i := range wide.Rows { // more classes, a skewed attribute
		wide.Rows[i].Values[0] = math.Floor(math.Pow(wide.Rows[i].Values[0], 2) / 100)
		if int(wide.Rows[i].Values[0])/1500%2 == 1 {
			wide.Rows[i].Class = (wide.Rows[i].Class + 1) % 3
		}
	}
	return map[string]*Set{"noisy": plain, "skewed": wide}
}

// foldOf cuts a set into rows for training and for the test.
func foldOf(s *Set, fold int) (train, test *Set) {
	train = &Set{Attributes: s.Attributes, Classes: s.Classes}
	test = &Set{Attributes: s.Attributes, Classes: s.Classes}
	for i, row := range s.Rows {
		if i%parts == fold {
			test.Rows = append(test.Rows, row)
		} else {
			train.Rows = append(train.Rows, row)
		}
	}
	return train, test
}

func accuracy(tree *apps.Node, test *Set) float64 {
	hits := 0
	for _, row := range test.Rows {
		p, best := tree.Predict(row.Values), 0
		for c := range p {
			if p[c] > p[best] {
				best = c
			}
		}
		if best == row.Class {
			hits++
		}
	}
	return float64(hits) / float64(len(test.Rows))
}

// j48Says is one line of what J48 gave: set, part, root, size, accuracy.
type j48Says struct {
	set      string
	fold     int
	root     string
	size     int
	accuracy float64
}

// compare holds our trees against J48's: the same root, the accuracy within one
// point on the average of a set's parts.
func compare(t *testing.T, sets map[string]*Set, says []j48Says) {
	t.Helper()
	ours, theirs, n := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, s := range says {
		train, test := foldOf(sets[s.set], s.fold)
		tree, err := Grow(train, TreeDefaults())
		must.Succeed(t, err)
		root := ":"
		if !tree.Leaf() {
			root = train.Attributes[tree.Attribute].Name
		}
		size, _ := size(tree)
		got := accuracy(tree, test)
		t.Logf("%s, part %d: root %s, %d nodes, accuracy %.4f; J48: %s, %d, %.4f", s.set, s.fold, root, size, got, s.root, s.size, s.accuracy)
		if root != s.root {
			t.Errorf("%s, part %d: root %s, J48 has %s", s.set, s.fold, root, s.root)
		}
		ours[s.set], theirs[s.set], n[s.set] = ours[s.set]+got, theirs[s.set]+s.accuracy, n[s.set]+1
	}
	for set := range sets {
		if n[set] != parts {
			t.Errorf("%s: %v parts compared, want %d", set, n[set], parts)
		}
		if a, b := ours[set]/n[set], theirs[set]/n[set]; math.Abs(a-b) > 0.01 {
			t.Errorf("%s: accuracy %.4f, J48 has %.4f", set, a, b)
		}
	}
}

func parseJ48(t *testing.T, text string) []j48Says {
	t.Helper()
	var out []j48Says
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var s j48Says
		if _, err := fmt.Sscan(lines.Text(), &s.set, &s.fold, &s.root, &s.size, &s.accuracy); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		out = append(out, s)
	}
	return out
}

const j48Golden = "testdata/j48.golden"

// TestAsJ48 compares with what J48 gave when TestJ48 last ran with -update.
func TestAsJ48(t *testing.T) {
	text, err := os.ReadFile(j48Golden)
	must.Succeed(t, err)
	compare(t, compared(), parseJ48(t, string(text)))
}

// TestJ48 runs WEKA's J48 (`make test-weka`); on the flows of WEIR_FLOWS, too, if
// that names a table.
func TestJ48(t *testing.T) {
	jar := os.Getenv("WEIR_WEKA")
	if jar == "" {
		t.Skip("WEIR_WEKA is not set: the class path of WEKA (make test-weka sets it)")
	}
	sets := compared()
	var text bytes.Buffer
	for _, name := range []string{"noisy", "skewed"} {
		text.WriteString(runJ48(t, jar, name, sets[name]))
	}
	golden.Compare(t, j48Golden, text.String())
	if path := os.Getenv("WEIR_FLOWS"); strings.HasSuffix(path, ".csv.gz") {
		sets["flows"] = flowSet(t, path)
		text.WriteString(runJ48(t, jar, "flows", sets["flows"]))
	} else {
		t.Log("WEIR_FLOWS names no table of flows (.csv.gz): J48 is not compared on real ones")
	}
	compare(t, sets, parseJ48(t, text.String()))
}

// runJ48 returns a line for each part of a set.
func runJ48(t *testing.T, jar, name string, s *Set) string {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("testdata/J48Run.java")
	must.Succeed(t, err)
	args := []string{"-cp", jar, source}
	for fold := range parts {
		train, test := foldOf(s, fold)
		for kind, set := range map[string]*Set{"train": train, "test": test} {
			writeARFF(t, filepath.Join(dir, fmt.Sprintf("%s%d.arff", kind, fold)), set)
		}
		args = append(args, filepath.Join(dir, fmt.Sprintf("train%d.arff", fold)), filepath.Join(dir, fmt.Sprintf("test%d.arff", fold)))
	}
	var stderr bytes.Buffer
	command := exec.Command("java", args...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("run J48: %v\n%s", err, stderr.String())
	}
	var b strings.Builder
	fold := 0
	for line := range strings.Lines(string(out)) {
		fmt.Fprintf(&b, "%s %d %s", name, fold, line)
		fold++
	}
	return b.String()
}

// flowSet is a table of real flows with the paper's features.
func flowSet(t *testing.T, path string) *Set {
	t.Helper()
	file, err := os.Open(path)
	must.Succeed(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	must.Succeed(t, err)
	types := []string{"VOIP", "GAME", "SERVICES", "CHAT", "MULTIMEDIA", "WEB", "INTERACTIVE", "EMAIL", "BULK", "P2P"}
	flows, err := ReadTable(unzipped, types, true)
	must.Succeed(t, err)
	features, err := flow.Select([]string{"paper", "services"}, types)
	must.Succeed(t, err)
	s := &Set{Classes: len(types)}
	for _, f := range features {
		s.Attributes = append(s.Attributes, Attribute{Name: f.Name, Values: f.Values})
	}
	for _, f := range flows {
		row := Row{Class: slices.Index(types, f.Type), Weight: 1}
		for i := range features {
			row.Values = append(row.Values, features[i].Of(f, flow.KnownPorts(types)))
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

func writeARFF(t *testing.T, path string, s *Set) {
	t.Helper()
	var b strings.Builder
	b.WriteString("@relation set\n")
	for _, a := range s.Attributes {
		if len(a.Values) > 0 {
			fmt.Fprintf(&b, "@attribute %s {%s}\n", a.Name, strings.Join(a.Values, ","))
		} else {
			fmt.Fprintf(&b, "@attribute %s numeric\n", a.Name)
		}
	}
	b.WriteString("@attribute class {")
	for c := range s.Classes {
		fmt.Fprintf(&b, "c%d,", c)
	}
	b.WriteString("}\n@data\n")
	for _, row := range s.Rows {
		for i, v := range row.Values {
			switch {
			case math.IsNaN(v):
				b.WriteString("?,")
			case len(s.Attributes[i].Values) > 0:
				b.WriteString(s.Attributes[i].Values[int(v)] + ",")
			default:
				fmt.Fprintf(&b, "%v,", v)
			}
		}
		fmt.Fprintf(&b, "c%d\n", row.Class)
	}
	text := strings.ReplaceAll(b.String(), ",}", "}")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
}
