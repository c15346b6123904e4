//go:build netns

package identity

import (
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// BenchmarkLook tells what it costs to look at a container again: at its network
// as a whole, at its tap alone, which is there, and whether the tap's program is still the only one.
//
//	go test -tags netns -run - -bench Look ./internal/datapath/identity
func BenchmarkLook(bench *testing.B) {
	b := newBed(bench)
	bridged, direct := b.bridgeContainer("one"), b.macvlanContainer("two", 101)
	var taps *Taps
	b.inHost(func() (err error) { taps, err = NewTaps(); return err })
	defer taps.Close()
	for _, c := range []struct {
		name, ns string
		tap      Tap
		mode     v1.Mode
	}{
		{"bridge", bridged, b.assign(bridged, v1.ModeBridge, NumberFirst), v1.ModeBridge},
		{"macvlan", direct, b.assign(direct, v1.ModeMacvlan, NumberFirst+1), v1.ModeMacvlan},
	} {
		bench.Run(c.name+"/all", func(bench *testing.B) {
			b.inHost(func() error {
				inspector := NewInspector()
				for bench.Loop() {
					if _, err := inspector.Inspect(path(c.ns), ""); err != nil {
						return err
					}
				}
				return nil
			})
		})
		bench.Run(c.name+"/sole", func(bench *testing.B) {
			b.inHost(func() error {
				for bench.Loop() {
					if _, err := taps.SoleProgram(c.tap); err != nil {
						return err
					}
				}
				return nil
			})
		})
		bench.Run(c.name+"/tap", func(bench *testing.B) {
			number := NumberFirst
			if c.mode == v1.ModeMacvlan {
				number++
			}
			b.inHost(func() error {
				for bench.Loop() {
					if _, err := taps.Attach(c.tap, number); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
