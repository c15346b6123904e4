package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"
)

// swarmPort is where the nodes of a swarm speak with its manager.
const swarmPort = 2377

// joinTimeout is how long it may take until the manager counts on a node.
const joinTimeout = 30 * time.Second

// InitSwarm makes the engine the manager of a swarm of its own, without which
// it has no overlay networks. addr is the address of the engine's namespace
// that other nodes reach it at, and that its overlay traffic leaves from;
// overlay networks created without a subnet get pieces of 256 addresses of
// pool.
func (e *Engine) InitSwarm(ctx context.Context, addr netip.Addr, pool netip.Prefix) error {
	if e.opts.LiveRestore {
		return errors.New("make a swarm: the engine has LiveRestore, which excludes it")
	}
	_, err := e.api.SwarmInit(ctx, client.SwarmInitOptions{
		ListenAddr:      netip.AddrPortFrom(addr, swarmPort).String(),
		AdvertiseAddr:   addr.String(),
		DataPathAddr:    addr.String(),
		DefaultAddrPool: []netip.Prefix{pool},
		SubnetSize:      24,
	})
	if err != nil {
		return fmt.Errorf("make a swarm: %w", err)
	}
	return nil
}

// JoinSwarm makes the engine a worker in the swarm of manager, and returns when
// overlay networks of the swarm can be used here. addr is as for InitSwarm.
func (e *Engine) JoinSwarm(ctx context.Context, manager *Engine, addr netip.Addr) error {
	if err := e.joinSwarm(ctx, manager, addr); err != nil {
		return fmt.Errorf("join a swarm: %w", err)
	}
	return nil
}

func (e *Engine) joinSwarm(ctx context.Context, manager *Engine, addr netip.Addr) error {
	found, err := manager.api.SwarmInspect(ctx, client.SwarmInspectOptions{})
	if err != nil {
		return err
	}
	info, err := manager.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return err
	}
	_, err = e.api.SwarmJoin(ctx, client.SwarmJoinOptions{
		JoinToken:     found.Swarm.JoinTokens.Worker,
		RemoteAddrs:   []string{fmt.Sprintf("%s:%d", info.Info.Swarm.NodeAddr, swarmPort)},
		ListenAddr:    netip.AddrPortFrom(addr, swarmPort).String(),
		AdvertiseAddr: addr.String(),
		DataPathAddr:  addr.String(),
	})
	if err != nil {
		return err
	}
	own, err := e.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	for {
		node, err := manager.api.NodeInspect(ctx, own.Info.Swarm.NodeID, client.NodeInspectOptions{})
		if err == nil && node.Node.Status.State == swarm.NodeStateReady {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the manager does not count on the node %v after it joined: state %q, %w", joinTimeout, node.Node.Status.State, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// UplinkAddr is the host's address on its uplink.
func (h *Host) UplinkAddr() netip.Addr { return h.addresses.host4.Addr() }

// EnginePools divides EngineAddressPool: local is for networks of one engine,
// swarm for the overlay networks of several.
func (h *Host) EnginePools() (local, swarm netip.Prefix) {
	pool := h.EngineAddressPool()
	local = netip.PrefixFrom(pool.Addr(), pool.Bits()+1)
	upper, err := nthSubnet(pool, pool.Bits()+1, 1)
	if err != nil {
		panic(err) // a prefix of this plan has two halves
	}
	return local, upper
}

// MacvlanNetwork describes a network whose containers are neighbours of the
// host on its uplink. Its addresses are from the link's subnets, where
// no other network has any, and everything else is reached by way of the neighbour.
func (h *Host) MacvlanNetwork(name string) NetworkOptions {
	link := h.addresses.host4.Masked()
	last, err := nthSubnet(link, 24, 1<<(24-link.Bits())-1)
	if err != nil {
		panic(err) // the link's subnet has more than 256 addresses
	}
	return NetworkOptions{
		Name: name, Driver: "macvlan", Options: map[string]string{"parent": uplinkName},
		Subnet: link, Range: last, Gateway: h.addresses.peer4.Addr(),
		Subnet6: h.addresses.host6.Masked(), Range6: upperSubnet6(h.addresses.host6), Gateway6: h.addresses.peer6.Addr(),
	}
}

// upperSubnet6 are 65536 addresses of a prefix that are not its first. (Docker
// 20.10 cannot take the last.)
func upperSubnet6(prefix netip.Prefix) netip.Prefix {
	raw := prefix.Masked().Addr().As16()
	raw[13] = 1
	return netip.PrefixFrom(netip.AddrFrom16(raw), 112)
}
