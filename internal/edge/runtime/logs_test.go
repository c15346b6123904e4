package runtime

import "testing"

func TestLastWords(t *testing.T) {
	for text, want := range map[string]string{
		"":             "",
		"one\ntwo \n":  "two",
		"\nonly one\n": "only one",
		`[NOTICE]   (1) : haproxy version is 2.6.12-1
[ALERT]    (1) : Starting frontend users-80: cannot bind socket (Address already in use) for [0.0.0.0:80]
[ALERT]    (1) : [haproxy.main()] Some protocols failed to start their listeners! Exiting.
`: "cannot bind socket (Address already in use) for [0.0.0.0:80]",
	} {
		if got := lastWords(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
