package controller

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestListenTaken: where somebody listens already it is said what to do.
func TestListenTaken(t *testing.T) {
	first, err := Listen("tcp:127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Listen("tcp:"+first.Addr().String(), nil)
	if err == nil {
		second.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "give another address") {
		t.Errorf("a second time: %v", err)
	}
}
