package pods

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
)

// CNI's bandwidth plugin (a token bucket at the pod's veth, another one at an IFB) limits pods by the same
// annotations as Weir, without a look at weights. The kernel does not tell whose a token bucket is, so it
// is found where the chain of plugins is configured.

// HostRoots returns paths to the host's root directory, the first one for an agent in a container.
func HostRoots() []string { return []string{"/proc/1/root", "/"} }

// cniFolders are the folders of CNI's configuration: that of most distributions, k3s' and MicroK8s'.
var cniFolders = []string{"etc/cni/net.d", "var/lib/rancher/k3s/agent/etc/cni/net.d", "var/snap/microk8s/current/args/cni-network"}

// BandwidthPlugin returns the file of CNI's configuration in whose chain the bandwidth plugin is; "" if it is in
// none. Runtimes use the first file of a folder by name.
func BandwidthPlugin(roots []string) string {
	for _, folder := range cniFolders {
		for _, root := range roots {
			entries, err := os.ReadDir(filepath.Join(root, folder)) // sorted
			if err != nil {
				continue
			}
			for _, e := range entries {
				if !slices.Contains([]string{".conflist", ".conf", ".json"}, filepath.Ext(e.Name())) {
					continue
				}
				chain, err := readChain(filepath.Join(root, folder, e.Name()))
				if err != nil {
					continue // as runtimes do
				}
				if slices.Contains(chain, "bandwidth") {
					return filepath.Join("/", folder, e.Name())
				}
				break
			}
		}
	}
	return ""
}

// readChain returns the types of the plugins of a network.
func readChain(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var network struct{ Plugins []struct{ Type string } }
	if err := json.Unmarshal(text, &network); err != nil {
		return nil, err
	}
	var types []string
	for _, plugin := range network.Plugins {
		types = append(types, plugin.Type)
	}
	return types, nil
}
