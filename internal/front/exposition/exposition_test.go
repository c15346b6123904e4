package exposition

import (
	"bytes"
	"errors"
	"testing"
)

// failing is a writer that is full.
type failing struct{}

var errFull = errors.New("full")

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestWrite(t *testing.T) {
	gauge, counter := Family{Name: "a_ratio", Help: "Of it."}, Family{Name: "b_total", Help: "Of them.", Counter: true}
	gauge.Add(Truth(true), "node", "a", "port", "x\xff\"\n")
	gauge.Add(Truth(false), "node", "b", "port", "")
	counter.Add(BytesPerSecond(20))
	var b bytes.Buffer
	if err := Write(&b, gauge, Family{Name: "c", Help: "Nothing."}, counter); err != nil {
		t.Fatal(err)
	}
	want := "# HELP a_ratio Of it.\n# TYPE a_ratio gauge\na_ratio{node=\"a\",port=\"x\uFFFD\\\"\\n\"} 1\na_ratio{node=\"b\",port=\"\"} 0\n" +
		"# HELP b_total Of them.\n# TYPE b_total counter\nb_total 2.5\n"
	if b.String() != want {
		t.Errorf("%s\nwant %s", b.String(), want)
	}
	if err := Write(failing{}, counter); !errors.Is(err, errFull) {
		t.Errorf("to a reader that has gone: %v", err)
	}
}
