package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Redirect hands packets that one device receives to another device, which sends them: a filter of
// the clsact qdisc whose program decides, with the action mirred. Like a Hook it belongs to the
// device and outlives the process. Unlike a program that calls bpf_redirect it works with an IFB on
// every kernel (drivers/net/ifb.c, ifb_xmit, before Linux commit 59e498a3289f) and on devices
// without a link layer header.
type Redirect struct {
	// From and To are indexes of devices of the current namespace.
	From, To int
}

// redirectHandle is the handle of the filter, at Hook's first preference.
const redirectHandle = 0x7e13

// tcaBPFAct is TCA_BPF_ACT of include/uapi/linux/pkt_cls.h.
const tcaBPFAct = 1

// filterName names a program's filter by where it leads, which is how Find knows it.
func (r Redirect) filterName(program string) string { return program + ">" + strconv.Itoa(r.To) }

func (r Redirect) hook() Hook { return Hook{Ifindex: r.From} }

// Attach redirects the packets for which program returns -1; those for which it returns 0 go on as
// before. A filter that Attach made earlier is replaced, and no packet passes without one. Errors:
// no device, or a kernel without cls_bpf or act_mirred.
func (r Redirect) Attach(program *ebpf.Program) error {
	facts, err := factsOf(program)
	if err != nil {
		return err
	}
	if err := r.hook().addClsact(); err != nil {
		return err
	}
	request := nl.NewNetlinkRequest(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	const ethPAll = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	request.AddData(&nl.TcMsg{
		Family: unix.AF_UNSPEC, Ifindex: int32(r.From), Handle: redirectHandle,
		Parent: uint32(r.hook().clsact()), Info: netlink.MakeHandle(filterPreference, ethPAll),
	})
	request.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_BPF_FD, nl.Uint32Attr(uint32(program.FD())))
	options.AddRtAttr(nl.TCA_BPF_NAME, nl.ZeroTerminated(r.filterName(facts.name)))
	if err := netlink.EncodeActions(options.AddRtAttr(tcaBPFAct, nil), []netlink.Action{netlink.NewMirredAction(r.To)}); err != nil {
		return fmt.Errorf("redirect from device %d: %w", r.From, err)
	}
	request.AddData(options)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		if errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("%w: this kernel lacks cls_bpf or act_mirred (CONFIG_NET_CLS_BPF, CONFIG_NET_ACT_MIRRED; modprobe act_mirred)", err)
		}
		return fmt.Errorf("redirect from device %d to %d: %w", r.From, r.To, r.hook().withFirst(err))
	}
	return nil
}

// Find opens the program of that name if it redirects as r says, or returns nil. The caller closes it.
func (r Redirect) Find(name string) (program *ebpf.Program, err error) {
	program, _, err = r.FindPlace(name)
	return program, err
}

// FindPlace opens a program as Find does, and names the programs and filters that see packets before it, except
// those called as one of except. Their verdicts may keep packets from it.
func (r Redirect) FindPlace(name string, except ...string) (program *ebpf.Program, before []string, err error) {
	all, err := r.hook().programs()
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(all, func(a attached) bool { return a.filter != nil && a.filter.name == r.filterName(name) })
	if i < 0 {
		return nil, nil, nil
	}
	if before, err = namesOf(all[:i], except); err != nil {
		return nil, nil, err
	}
	program, err = ebpf.NewProgramFromID(all[i].id)
	if err != nil {
		return nil, nil, fmt.Errorf("open program %d: %w", all[i].id, err)
	}
	return program, before, nil
}

// namesOf returns the names of programs and filters, except those in except.
func namesOf(list []attached, except []string) (names []string, err error) {
	for _, a := range list {
		name, err := a.name()
		if err != nil {
			return nil, err
		}
		if name != "" && !slices.Contains(except, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Redirects lists the redirects by the program of that name at all devices of the current namespace,
// also those to a device that is gone.
func Redirects(name string) ([]Redirect, error) {
	links, err := Links()
	if err != nil {
		return nil, err
	}
	var list []Redirect
	for _, l := range links {
		all, err := Redirect{From: l.Index}.hook().filters()
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			to, ours := strings.CutPrefix(a.filter.name, name+">")
			if index, err := strconv.Atoi(to); ours && err == nil {
				list = append(list, Redirect{From: l.Index, To: index})
			}
		}
	}
	return list, nil
}

// Detach removes the redirect of r.From, to any device. A missing device or filter is no error.
func (r Redirect) Detach() error {
	all, err := r.hook().filters()
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, a := range all {
		if f := a.filter; f.handle == redirectHandle && f.priority == filterPreference {
			return r.hook().removeFilter(f)
		}
	}
	return nil
}

// Others names the programs and filters at the ingress hook of r.From that are neither r's nor called as
// one of except. Programs that come first may decide about packets that r never sees; those behind it
// see only what r lets pass.
func (r Redirect) Others(except ...string) ([]string, error) {
	all, err := r.hook().programs()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(a attached) bool { return a.filter != nil && a.filter.handle == redirectHandle })
	return namesOf(all, except)
}

// KindIFB is the kernel's name for an IFB.
const KindIFB = "ifb"

// MaxNameBytes is the greatest length of a device's name (IFNAMSIZ less the terminating zero).
const MaxNameBytes = unix.IFNAMSIZ - 1

// AddIFB makes an intermediate functional block device with one queue, switched off. An IFB
// hands each packet that it sends back to the device that received it.
func AddIFB(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = name, 1, 1
	if err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w: this kernel has none (CONFIG_IFB; modprobe ifb)", err)
		}
		return fmt.Errorf("make %s (an IFB, for received traffic): %w", name, err)
	}
	return nil
}

// SetUp switches a device on. Errors: ErrNoLink.
func SetUp(ifindex int) error {
	l, err := lookUp(netlink.LinkByIndex, ifindex)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("switch on %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// DeleteLink deletes a device. A missing one is no error.
func DeleteLink(ifindex int) error {
	l, err := lookUp(netlink.LinkByIndex, ifindex)
	if errors.Is(err, ErrNoLink) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete device %d: %w", ifindex, err)
	}
	return nil
}
