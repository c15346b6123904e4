// Package k8s tests weir-k8s with a real containerd, its CRI and NRI, and pods that really send; and
// weir-dra with Kubernetes itself. The tests need root, docker.io (for runc and ctr), and `make
// bin/kubernetes`, or `make bin/controlplane bin/weir-dra` too:
//
//	go test -tags docker ./test/k8s
//	go test -tags cluster ./test/k8s
package k8s
