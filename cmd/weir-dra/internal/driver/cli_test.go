package driver

import (
	"strings"
	"testing"
)

// TestLock: a second driver on a node ends with the reason, until the first one has ended.
func TestLock(t *testing.T) {
	folder := t.TempDir() + "/weir.dev"
	unlock, err := lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(folder); err == nil || !strings.Contains(err.Error(), "another weir-dra runs on this node") {
		t.Errorf("the second one: %v", err)
	}
	unlock()
	unlock, err = lock(folder)
	if err != nil {
		t.Fatalf("after the first one: %v", err)
	}
	unlock()
}
