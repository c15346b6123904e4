// Package edge tests weir-edge with real private Docker engines, real HAProxy and
// users on a neighbouring host. The tests need root, docker.io and haproxy:
//
//	go test -tags docker ./test/edge
package edge
