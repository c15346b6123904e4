//go:build netns

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/weir-project/weir/test/must"
)

// TestListDevices: devices of all kinds are what the library makes of them.
func TestListDevices(t *testing.T) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	run := func(arguments string) {
		t.Helper()
		must.Succeed(t, exec.Command("ip", strings.Fields(arguments)...).Run())
	}
	for _, suffix := range []string{"", "-other"} {
		run("netns add " + name + suffix)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name+suffix).Run() })
	}
	for _, command := range []string{
		"link add br0 type bridge",
		"link add inside type veth peer name outside netns " + name + "-other",
		"link set inside up master br0 mtu 9000",
		"link add both1 type veth peer name both2",
		"link set both1 up gso_max_size 3000",
		"link set both2 address 02:00:00:00:00:07",
		"link add many numtxqueues 4 type veth peer name one",
		"link add ifb0 numtxqueues 4 type ifb",
		"link add vxlan0 type vxlan id 42 dstport 4789 dev both1",
		"link add macvlan0 link both2 type macvlan",
	} {
		run("-n " + name + " " + command)
	}
	const pass = 2 // XDP_PASS in linux/bpf.h
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pass", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	must.Succeed(t, err)
	defer program.Close()
	must.Succeed(t, InNetNS("/run/netns/"+name, func() error {
		end, err := netlink.LinkByName("both2")
		must.Succeed(t, err)
		must.Succeed(t, netlink.LinkSetXdpFd(end, program.FD()))
		got, err := Links()
		must.Succeed(t, err)
		want, err := listLinks(netlink.LinkList)
		must.Succeed(t, err)
		if !slices.Equal(got, want) || len(got) < 10 {
			t.Errorf("devices\n%+v\nwant\n%+v", got, want)
		}
		return nil
	}))
}

// BenchmarkLinks lists the devices of a host with a thousand containers.
func BenchmarkLinks(b *testing.B) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	must.Succeed(b, exec.Command("ip", "netns", "add", name).Run())
	b.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	var batch strings.Builder
	for i := range 500 {
		fmt.Fprintf(&batch, "link add a%d type veth peer name b%d\n", i, i)
	}
	add := exec.Command("ip", "-n", name, "-batch", "-")
	add.Stdin = strings.NewReader(batch.String())
	must.Succeed(b, add.Run())
	for by, ask := range map[string]func() ([]netlink.Link, error){"library": netlink.LinkList, "reader": listDevices} {
		b.Run(by, func(b *testing.B) {
			b.ReportAllocs()
			must.Succeed(b, InNetNS("/run/netns/"+name, func() error {
				for b.Loop() {
					_, err := listLinks(ask)
					must.Succeed(b, err)
				}
				return nil
			}))
		})
	}
}
