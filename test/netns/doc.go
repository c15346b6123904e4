// Package netns tests the weir program, from its flags to the packets on the
// wire, on hosts made of network namespaces. Containers are namespaces that
// the agent's config file names. The tests need root:
//
//	go test -tags netns ./test/netns
package netns
