package cli

import (
	"log/slog"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/docker"
	"github.com/weir-project/weir/internal/agent/discovery/static"
	"github.com/weir-project/weir/internal/front/config"
)

// sources returns the discovery sources that the settings name.
func sources(settings config.Config, log *slog.Logger) []discovery.Source {
	var list []discovery.Source
	for _, engine := range []struct {
		name string
		config.Engine
	}{{"docker", settings.Docker}, {"podman", settings.Podman}} {
		if engine.Enabled == config.Off {
			continue
		}
		var source discovery.Source = docker.New(docker.Options{Name: engine.name, Socket: engine.Socket, Logger: log})
		if engine.Enabled == config.Auto {
			source = discovery.Optional{Source: source, Path: engine.Socket}
		}
		list = append(list, source)
	}
	if len(settings.Containers) > 0 {
		var containers []discovery.Container
		for _, c := range settings.Containers {
			containers = append(containers, discovery.Container{
				Name: c.Name, Runtime: static.Runtime, Labels: c.Labels,
				NetNSPath: c.NetNSPath, CgroupPath: c.CgroupPath, Interface: c.Interface,
			})
		}
		list = append(list, static.New(static.Runtime, containers, log))
	}
	return list
}
