package transport

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// TestHostileAnswers: a daemon of another machine can make a reader use little memory only.
func TestHostileAnswers(t *testing.T) {
	elements := func(element string, count int) string { return strings.Repeat(element+",", count-1) + element }
	labels := func(count int) string {
		var text strings.Builder
		for i := range count {
			fmt.Fprintf(&text, `"%x":"",`, i)
		}
		return strings.TrimSuffix(text.String(), ",")
	}
	answers := map[string]struct{ body, says string }{
		"small":                   {`{"containers":[{"name":"a, [b"},{"name":"c\\"}]}`, ""},
		"as many as there may be": {`{"containers":[` + elements("{}", 4096) + `]}`, ""},
		"a crowd":                 {`{"containers":[` + elements("{}", 1<<18) + `]}`, "its lists have more than 4096 elements"},
		"a crowd of nothing":      {`{"containers":[` + elements("null", 1<<17) + `]}`, "more than 4096 elements"},
		"a crowd in one":          {`{"containers":[{"shares":[` + elements("{}", 1<<18) + `]}]}`, "more than 4096 elements"},
		"crowds in some":          {`{"containers":[` + elements(`{"groups":[]}`, 4000) + `]}`, "more than 4096 elements"},
		"a crowd of labels":       {`{"containers":[{"labels":{` + labels(1<<15) + `}}]}`, ""},
		"too many labels":         {`{"containers":[{"labels":{` + labels(1<<16) + `}}]}`, "its objects have more than 32768 members"},
		"text without an end":     {`{"version":"` + strings.Repeat("x", 1<<20), "it has more than 1 MiB"},
		"half":                    {`{"containers":[`, "unexpected end"},
		"a long refusal":          {"", "…"},
		"compressed":              {"", "invalid character"},
		"a long header":           {"", "header"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name := r.URL.Query().Get("a"); name {
		case "a long refusal":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"`+strings.Repeat("x", 1<<19)+`"}`)
		case "compressed":
			if accepts := r.Header.Get("Accept-Encoding"); accepts != "" {
				t.Errorf("it asks for %s", accepts)
			}
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			_, _ = io.WriteString(packed, answers["small"].body)
			_ = packed.Close()
		case "a long header":
			w.Header().Set("X", strings.Repeat("x", 1<<19))
		case "line":
			_, _ = io.WriteString(w, "{}\n{}\n"+`"`+strings.Repeat("x", 2<<20))
		default:
			_, _ = io.WriteString(w, answers[name].body)
		}
	}))
	defer server.Close()
	peer := &Peer{
		Name: "it", Base: server.URL, HTTP: Client(&http.Transport{}), MaxAnswerBytes: 1 << 20,
		Unreachable: func(err error) error { return err }, Refused: func(_ int, message string) error { return errors.New(message) },
	}
	for name, test := range answers {
		var snapshot v1.Snapshot
		err := peer.Call(t.Context(), http.MethodGet, "/?a="+strings.ReplaceAll(name, " ", "+"), nil, &snapshot)
		if (err == nil) != (test.says == "") || err != nil && (!strings.Contains(err.Error(), test.says) || len(err.Error()) > 2*maxMessageBytes) {
			t.Errorf("%s: %.200v, want %q", name, err, test.says)
		}
	}
	objects := 0
	err := Stream(t.Context(), peer, "/?a=line", func(struct{}) error { objects++; return nil })
	if objects != 2 || err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("%d objects, %v", objects, err)
	}
}
