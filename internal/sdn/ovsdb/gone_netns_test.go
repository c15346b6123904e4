//go:build netns

package ovsdb

import (
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/test/must"
)

// TestGoneDevice: the device of a port that went while nobody looked is given back, with
// what somebody had configured on it, before its row goes.
func TestGoneDevice(t *testing.T) {
	address, vsctl, _ := database(t)
	host, err := testbed.NewHost(t.Context(), testbed.HostOptions{})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	inHost := func(do func() error) {
		t.Helper()
		must.Succeed(t, testbed.InNetNS(host.NetNSPath(), do))
	}
	tc := func(args ...string) (string, error) {
		out, err := exec.Command("tc", append([]string{"qdisc"}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("tc qdisc %v: %w: %s", args, err, out)
		}
		return string(out), err
	}

	aside, mac := "", ""
	inHost(func() error {
		link, err := net.InterfaceByName(host.UplinkName)
		if err != nil {
			return err
		}
		if _, err := tc("add", "dev", link.Name, "root", "handle", "5:", "tbf", "rate", "1gbit", "burst", "100k", "limit", "100k"); err != nil {
			return err
		}
		shares := qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map()
		queues, err := shares.Of(1e8)
		if err != nil {
			return err
		}
		p := port{name: link.Name, device: device{name: link.Name, ifindex: link.Index, mac: link.HardwareAddr.String()}}
		var made trees
		defer made.close()
		at, err := made.prepare(p, true)
		if err != nil {
			return err
		}
		aside, mac = at.aside, p.device.mac
		_, err = made.put(at, p, qos.Change{RateBPS: 1e8, Queues: queues}, slog.New(slog.DiscardHandler))
		return err
	})
	// Of the port only the row is left.
	vsctl("create", "qos", "type="+qos.TypeNoop, "external_ids:"+qos.OwnerKey+"="+qos.Owner,
		"external_ids:"+qos.AddressKey+"="+strconv.Quote(mac),
		"external_ids:"+qos.DeviceKey+"="+strconv.Quote(host.UplinkName), "external_ids:"+qos.AsideKey+"="+strconv.Quote(aside))
	inHost(func() error {
		if there, err := tc("show", "dev", host.UplinkName); err != nil || !strings.Contains(there, "htb 1:") {
			return fmt.Errorf("queues were not made: %q, %w", there, err)
		}
		if _, err := Remove(t.Context(), address, ""); err != nil {
			return err
		}
		there, err := tc("show", "dev", host.UplinkName)
		if err != nil || !strings.Contains(there, "qdisc tbf 5: root") || strings.Contains(there, "htb") {
			return fmt.Errorf("given back as %q, %w", there, err)
		}
		return nil
	})
	if left := vsctl("list", "qos"); left != "" {
		t.Errorf("rows are left: %s", left)
	}
}
