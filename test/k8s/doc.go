// Package k8s tests weir-k8s with a real containerd, its CRI and NRI, and pods that really send. The
// tests need root, docker.io (for runc and ctr) and `make bin/kubernetes`:
//
//	go test -tags docker ./test/k8s
package k8s
