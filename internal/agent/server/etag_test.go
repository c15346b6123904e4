package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// Of two who change what they have seen, the second one learns of the first.
func TestConflictingChanges(t *testing.T) {
	a, client := serveAgent(t)
	const path = "/v1/containers/web/policy"
	ask := func(method, match, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://weir"+path, strings.NewReader(body))
		must.Succeed(t, err)
		if match != "" {
			r.Header.Set("If-Match", match)
		}
		response, err := client.http.Do(r)
		must.Succeed(t, err)
		response.Body.Close()
		return response.StatusCode, response.Header.Get("ETag")
	}
	_, seen := ask("GET", "", "")
	if len(seen) < 3 {
		t.Fatalf("the ETag is %q", seen)
	}
	if _, again := ask("GET", "", ""); again != seen {
		t.Errorf("nothing has changed, but %s is %s", seen, again)
	}
	status, after := ask("PATCH", seen, `{"weight": "1"}`)
	if status != 200 || after == seen || after == "" || a.called != "set web" {
		t.Fatalf("the first change: %d, %q, %q", status, after, a.called)
	}
	a.called = ""
	for _, method := range []string{"PATCH", "DELETE"} {
		for match, want := range map[string]int{
			seen: 412, `"other"`: 412, "W/" + after: 400, "nonsense": 400, `"`: 400, strings.Trim(after, `"`): 400,
		} {
			if status, tag := ask(method, match, "{}"); status != want || a.called != "" || tag != "" {
				t.Errorf("%s if %s: %d, %q", method, match, status, a.called)
			}
		}
	}
	for _, form := range []string{"TAG", `"other", TAG`, "*", ""} {
		status, tag := ask("PATCH", strings.Replace(form, "TAG", after, 1), `{"weight": "1"}`)
		if status != 200 || tag == after {
			t.Errorf("if %s: %d, %s", form, status, tag)
		}
		after = tag
	}
	if status, tag := ask("DELETE", after, ""); status != 200 || tag == after {
		t.Errorf("reset: %d, %s", status, tag)
	}
}
