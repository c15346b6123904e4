package report

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/golden"
)

// measured is a report with one quantity for each set of values.
func measured(values map[string][]float64) Report {
	r := sample()
	for _, name := range slices.Sorted(mapsKeys(values)) {
		better := Higher
		switch {
		case strings.Contains(name, "delay"):
			better = Lower
		case strings.Contains(name, "share"):
			better = ""
		}
		r.Quantities = append(r.Quantities, Quantity{Case: "case", Name: name, Unit: "u", Better: better, Values: values[name]})
	}
	return r
}

func mapsKeys(m map[string][]float64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// noisy are values around a mean.
func noisy(seed uint64, mean, spread float64, count int) []float64 {
	random := rand.New(rand.NewPCG(seed, 1))
	values := make([]float64, count)
	for i := range values {
		values[i] = mean + spread*random.NormFloat64()
	}
	return values
}

func outcomeOf(t *testing.T, c Comparison, name string) Change {
	t.Helper()
	i := slices.IndexFunc(c.Changes, func(one Change) bool { return one.Name == name })
	if i < 0 {
		t.Fatalf("%s was not compared", name)
	}
	return c.Changes[i]
}

// TestCompare: what changed by more than the noise is found, with its direction, and
// what did not is not.
func TestCompare(t *testing.T) {
	a := measured(map[string][]float64{
		"rate up": noisy(1, 100, 1, 8), "rate down": noisy(2, 100, 1, 8), "rate": noisy(3, 100, 5, 8), "delay": noisy(4, 2, 0.1, 8),
		"share": noisy(5, 50, 1, 8), "rate, few": {100, 101, 99}, "gone": {1},
	})
	b := measured(map[string][]float64{
		"rate up": noisy(6, 110, 1, 8), "rate down": noisy(7, 90, 1, 8), "rate": noisy(8, 100, 5, 8), "delay": noisy(9, 1, 0.1, 8),
		"share": noisy(10, 60, 1, 8), "rate, few": {200, 201, 199}, "new": {1},
	})
	exact := Quantity{Case: "model", Name: "loss", Unit: "fraction", Better: Lower, Values: []float64{0.1}, Exact: true}
	rounded := exact
	rounded.Name = "wait"
	a.Quantities = append(a.Quantities, exact, rounded)
	exact.Values, rounded.Values = []float64{0.100001}, []float64{0.1 + 1e-16}
	b.Quantities = append(b.Quantities, exact, rounded)
	c, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Outcome{
		"rate up": Improved, "rate down": Worsened, "rate": Same, "delay": Improved, "share": Changed, "rate, few": TooFew,
		"loss": Worsened, "wait": Same,
	} {
		if got := outcomeOf(t, c, name); got.Outcome != want {
			t.Errorf("%s is %q, want %q: %+v", name, got.Outcome, want, got)
		}
	}
	up := outcomeOf(t, c, "rate up")
	if up.P == nil || *up.P > 0.001 || up.A.Low == nil || *up.A.Low > 100 || *up.A.High < 100 || *up.B.Low < 105 || *up.Ratio < 1.05 {
		t.Errorf("%+v", up)
	}
	if few := outcomeOf(t, c, "rate, few"); few.A.Low != nil || few.text(few.A) != "100 (n=3)" {
		t.Errorf("%+v", few)
	}
	if len(c.Differences) != 0 || !slices.Equal(c.OnlyA, []string{"case: gone"}) || !slices.Equal(c.OnlyB, []string{"case: new"}) {
		t.Errorf("differences %q, only in A %q, only in B %q", c.Differences, c.OnlyA, c.OnlyB)
	}
	var out bytes.Buffer
	if err := c.WriteText(&out, true); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/compare.txt.golden", out.String())
	out.Reset()
	if err := c.WriteText(&out, false); err != nil || strings.Contains(out.String(), "\n"+string(Same)) {
		t.Errorf("%v: what did not change is shown:\n%s", err, out.String())
	}
}

// TestCompareFalseAlarms: of many quantities that did not change about as many seem to
// as the test promises, and no more.
func TestCompareFalseAlarms(t *testing.T) {
	var a, b Report
	for i := range uint64(1000) {
		q := Quantity{Case: "case", Name: strings.Repeat("x", int(i)+1), Unit: "u", Values: noisy(i, 10, 3, 8)}
		a.Quantities = append(a.Quantities, q)
		q.Values = noisy(i+5000, 10, 3, 8)
		b.Quantities = append(b.Quantities, q)
	}
	c, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Count(Changed); got < 20 || got > 80 {
		t.Errorf("%d of 1000 seem to have changed, want about 50", got)
	}
}

// TestCompareElsewhere: another machine, kernel, build and command are said, all of them.
func TestCompareElsewhere(t *testing.T) {
	a := measured(map[string][]float64{"rate": {1}})
	b := measured(map[string][]float64{"rate": {1}})
	e := &b.Environment
	e.Machine, e.CPUs, e.Kernel, e.TCP, e.Weir, e.Go, e.Containers, e.TC = "Server", 64, "7.2", "bbr", "v2", "go1.27", "docker", "tc 6"
	b.Command, b.Seed, b.Title = "weir bench other", 8, "Another title"
	c, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(c.Differences, "\n")
	for _, want := range []string{
		"another machine: Board against Server", "other processors: 4 x Cortex (arm64) against 64 x", "another kernel: 6.18 against 7.2",
		"another congestion control: cubic against bbr", "another Weir: v1 against v2", "another Go: go1.26 against go1.27",
		"other containers: none against docker", "another tc: none against tc 6", "against weir bench other", "another seed: 7 against 8",
		"another kind of report: A <title> against Another title",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said:\n%s", want, said)
		}
	}
	var out bytes.Buffer
	if err := c.WriteText(&out, false); err != nil || !strings.Contains(out.String(), "NOT THE SAME: another kernel") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

func TestCompareRefuses(t *testing.T) {
	a, b := measured(map[string][]float64{"rate": {1}}), measured(map[string][]float64{"delay": {1}})
	if _, err := Compare(a, b); err == nil || !strings.Contains(err.Error(), "nothing in common") {
		t.Errorf("error %v", err)
	}
	c := measured(map[string][]float64{"rate": {1}})
	c.Quantities[0].Unit = "bytes"
	if _, err := Compare(a, c); err == nil || !strings.Contains(err.Error(), `case: rate is in "u" in one report and in "bytes"`) {
		t.Errorf("error %v", err)
	}
	zero, one := measured(map[string][]float64{"rate": {0}}), measured(map[string][]float64{"rate": {1}})
	if found, err := Compare(zero, one); err != nil || found.Changes[0].Ratio != nil {
		t.Errorf("%v: %+v", err, found)
	}
}
