// Package sdn tests weir sdn with a real Open vSwitch: ovs-vswitchd with its
// userspace datapath and ovsdb-server run in a network namespace of their own,
// with a database, sockets and logs of their own; hosts are further
// namespaces. The tests need root:
//
//	go test -tags netns ./test/sdn
//
// The userspace datapath makes queues but sends no packets to them: the queue
// of a flow is read from the flow table of its switch.
package sdn
