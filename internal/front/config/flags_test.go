package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/test/must"
)

// TestLoadFlags: values, lists and maps of a file are given one by one, in order, and mistakes have their line.
func TestLoadFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sdn.yaml")
	load := func(content string) (given []string, err error) {
		t.Helper()
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
		err = config.LoadFlags(path, []string{"max_flows", "rate", "strict", "trust"}, func(option, key, text string) error {
			if text == "bad" {
				return errors.New("is no rate")
			}
			given = append(given, strings.Join([]string{option, key, text}, " "))
			return nil
		})
		return given, err
	}
	given, err := load("max_flows: 0100\nstrict: true\nrate: [100mbit, p2=5mbit]\ntrust:\n  00000000000000ab: [eth1, eth2]\n  0x12: eth3\n")
	if want := []string{"max_flows  0100", "rate  100mbit", "rate  p2=5mbit", "strict  true", "trust 00000000000000ab eth1", "trust 00000000000000ab eth2", "trust 0x12 eth3"}; err != nil || !slices.Equal(given, want) {
		t.Errorf("%q, %v", given, err)
	}
	for content, says := range map[string]string{
		"rate: 1mbit\nstrikt: true\n":        "sdn.yaml:2: strikt: unknown key; did you mean strict?",
		"zzz: 1":                             "sdn.yaml:1: zzz: unknown key; known here are max_flows, rate, strict, trust",
		"strict: true\nstrict: false\n":      "sdn.yaml:2: strict: is already given on line 1",
		"rate:\n  - 1mbit\n  - bad\n":        `sdn.yaml:3: rate[1]: "bad": is no rate`,
		"rate:\n  p1: bad\n":                 `sdn.yaml:2: rate.p1: "bad": is no rate`,
		"trust: {ab: {p1: true}}\n":          "sdn.yaml:1: trust.ab: is a map in a map",
		"trust:\n":                           "sdn.yaml:1: trust: is empty",
		"strict: &a true\n":                  "anchors, aliases, merge keys and tags are not supported",
		"[strict]":                           "is a list; write keys and values, such as {max_flows: VALUE}",
		"strict: true\n---\nstrict: false\n": "more than one document",
	} {
		if _, err := load(content); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", content, err, says)
		}
	}
	if err := config.LoadFlags("/nowhere/sdn.yaml", nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
