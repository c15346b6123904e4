package runtime

import (
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/moby/moby/api/types/network"

	"github.com/weir-project/weir/internal/edge/spec"
)

// Mounts returns a container's mounts as engines and swarms take them.
func Mounts(list []spec.Mount) []mount.Mount {
	var mounts []mount.Mount
	for _, m := range list {
		made := mount.Mount{Type: mount.Type(m.Type), Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}
		switch made.Type {
		case mount.TypeBind:
			made.BindOptions = &mount.BindOptions{Propagation: mount.Propagation(m.Propagation), CreateMountpoint: !m.MustExist}
		case mount.TypeTmpfs:
			made.TmpfsOptions = &mount.TmpfsOptions{SizeBytes: m.SizeBytes, Mode: fs.FileMode(m.Mode)}
		default:
			made.VolumeOptions = &mount.VolumeOptions{NoCopy: m.NoCopy, Subpath: m.Subpath}
			if !m.External && (m.Driver != "" || len(m.Options) > 0) {
				made.VolumeOptions.DriverConfig = &mount.Driver{Name: m.Driver, Options: m.Options}
			}
		}
		mounts = append(mounts, made)
	}
	return mounts
}

// HealthCheck returns a health check as engines and swarms take it; nil for the image's.
func HealthCheck(h *spec.Health) *container.HealthConfig {
	if h == nil {
		return nil
	}
	return &container.HealthConfig{
		Test: h.Test, Interval: Seconds(h.IntervalSeconds), Timeout: Seconds(h.TimeoutSeconds), StartPeriod: Seconds(h.StartSeconds),
		StartInterval: Seconds(h.StartIntervalSeconds), Retries: h.Retries,
	}
}

// Seconds returns a number of seconds as a duration.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Ulimits returns limits as engines and swarms take them.
func Ulimits(list []spec.Ulimit) []*container.Ulimit {
	var limits []*container.Ulimit
	for _, u := range list {
		limits = append(limits, &container.Ulimit{Name: u.Name, Soft: u.Soft, Hard: u.Hard})
	}
	return limits
}

// Addresses parses addresses. Error: one is none.
func Addresses(list []string) (addresses []netip.Addr, err error) {
	for _, text := range list {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("dns: %w", err)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// NetworkOptions returns how a network of a project is made.
func NetworkOptions(project, driver string, n *spec.Attached) (client.NetworkCreateOptions, error) {
	made := client.NetworkCreateOptions{Driver: driver, Internal: n.Internal, Options: n.Options, Labels: map[string]string{LabelProject: project}}
	if n.IPv6 {
		made.EnableIPv6 = &n.IPv6
	}
	for _, text := range n.Subnets {
		subnet, err := netip.ParsePrefix(text)
		if err != nil {
			return made, fmt.Errorf("network %s: %w", n.Name, err)
		}
		if made.IPAM == nil {
			made.IPAM = &network.IPAM{}
		}
		made.IPAM.Config = append(made.IPAM.Config, network.IPAMConfig{Subnet: subnet})
	}
	return made, nil
}

// FileName returns a name of a container's file that differs if another service, the content or its
// owner does.
func FileName(service string, f *spec.File) string {
	return spec.Digest(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%o", service, f.Digest, f.UID, f.GID, f.Mode))[:32]
}

// Device splits "/dev/host:/dev/container:rwm".
func Device(text string) container.DeviceMapping {
	parts := strings.SplitN(text+"::", ":", 4)
	d := container.DeviceMapping{PathOnHost: parts[0], PathInContainer: parts[1], CgroupPermissions: parts[2]}
	if d.PathInContainer == "" {
		d.PathInContainer = d.PathOnHost
	}
	if d.CgroupPermissions == "" {
		d.CgroupPermissions = "rwm"
	}
	return d
}
