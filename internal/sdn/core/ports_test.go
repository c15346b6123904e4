package core

import (
	"math"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// TestPortStats: rates are of the time between two counts, of ports that are there;
// what a switch does not count, or counts anew, is none.
func TestPortStats(t *testing.T) {
	w, _ := oneSwitch(t, nil)
	count := func(tx, rx uint64) PortCount {
		w.core.PortStats(w.now, 1, []openflow.PortStats{{PortNo: 1, TxBytes: tx, RxBytes: rx, TxDropped: 3}, {PortNo: 99, TxBytes: 1}})
		return w.core.Snapshot(false).Switches[0].Ports[0].Count
	}
	if k := count(1000, math.MaxUint64); k.TxRateBPS != 0 || k.RxBytes != 0 {
		t.Errorf("at first %+v", k)
	}
	w.now = w.now.Add(2 * time.Second)
	if k := count(251_000, math.MaxUint64); k.TxRateBPS != 1e6 || k.RxRateBPS != 0 || k.TxDropped != 3 {
		t.Errorf("after two seconds %+v", k)
	}
	if k := count(251_000, math.MaxUint64); k.TxRateBPS != 1e6 {
		t.Errorf("counted again at once %+v", k)
	}
	w.now = w.now.Add(time.Second)
	if k := count(10, 0); k.TxRateBPS != 0 {
		t.Errorf("counted anew %+v", k)
	}
	w.core.PortStats(w.now, 77, nil) // a switch that is gone
}
