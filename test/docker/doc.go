// Package docker tests Weir with real private Docker engines. The tests need
// root and docker.io:
//
//	go test -tags docker ./test/docker
package docker
