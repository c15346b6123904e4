package proxy

import "strings"

// LabelService is the label of a service's instances and proxies.
const LabelService = "weir-edge.service"

// ContainerName returns the name of a service's proxy in the container engine. It is unique.
func ContainerName(service string) string { return "edgeproxy-" + service }

// InstanceName returns the name of an instance in the container engine and in proxies. It is
// unique, and differs from those of all proxies and ledgers.
func InstanceName(id string) string { return "edge-" + strings.ReplaceAll(id, ".", "-") }
