package server

import (
	"errors"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent"
)

func TestFind(t *testing.T) {
	list := []v1.Container{
		{Name: "web", ID: "0123456789abcdef"},
		{Name: "shop-db-1", ID: "1123456789abcdef", Groups: []string{"db"}},
		{Name: "api", ID: "1123aaaaaaaaaaaa", Groups: []string{"shop"}},
		{Name: "api", ID: "2223456789abcdef", Groups: []string{"shop"}},
		{Name: "host", ID: "host"},
	}
	for name, want := range map[string]int{
		"web": 0, "0123456789abcdef": 0, "0123": 0, "db": 1, "112345": 1, "2223": 3, "host": 4,
	} {
		if got, err := find(list, name); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", name, got, err, want)
		}
	}
	for name, want := range map[string]error{
		"api": agent.ErrAmbiguous, "shop": agent.ErrAmbiguous, "1123": agent.ErrAmbiguous,
		"": agent.ErrUnknown, "we": agent.ErrUnknown, "012": agent.ErrUnknown, "<b>": agent.ErrUnknown,
	} {
		if _, err := find(list, name); !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
}
