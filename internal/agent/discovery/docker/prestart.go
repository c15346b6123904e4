package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/discovery"
)

// An engine says that a container has started when its process runs already
// and may have sent something. Its network is connected before that, and the
// engine says so; but an inspection is answered only after the start, which
// holds the container's lock. So what is needed is found without: the process
// that is to become the container's waits in the container's cgroup, which is
// named as those of other containers are; its network namespace is the
// container's; and the list of containers, for which no lock is taken, has the
// labels. When it has started it is reported again, with all that an
// inspection tells. Where any of this is missing, as in an engine that does not tell of
// networks or has no cgroup v2, the container is reported when it has started.

const (
	// prestartTimeout is how long a connected container may take to be created.
	// One that is connected and not started at all is looked for that long.
	prestartTimeout = 10 * time.Second
	// minPrestartPause is the time between the first looks; later ones are as
	// far apart as suits the time that has passed.
	minPrestartPause = 2 * time.Millisecond
	// maxCgroupPatterns bounds the looks for one container; most engines have
	// one place for all.
	maxCgroupPatterns = 8
)

// idPlaceholder stands for the container's ID in a cgroup's path.
const idPlaceholder = "{id}"

// cgroupPatterns are where containers have their cgroups, those of the
// engine's two cgroup drivers first.
type cgroupPatterns []string

func defaultCgroupPatterns(point string) cgroupPatterns {
	return cgroupPatterns{
		filepath.Join(point, "docker", idPlaceholder),
		filepath.Join(point, "system.slice", "docker-"+idPlaceholder+".scope"),
	}
}

// learn takes note of where a container has its cgroup.
func (p *cgroupPatterns) learn(path, id string) {
	pattern := strings.ReplaceAll(path, id, idPlaceholder)
	if path == "" || slices.Contains(*p, pattern) {
		return
	}
	if *p = append(*p, pattern); len(*p) > maxCgroupPatterns {
		*p = (*p)[1:]
	}
}

// reportBeforeStart reports a container that is about to start, if it can be seen in
// time. It returns true, and leaves the rest to the caller, when wake says that
// there is other news of it.
func (w *watch) reportBeforeStart(ctx context.Context, id string, wake <-chan struct{}) (woken bool) {
	began := time.Now()
	var info *inspection
	for {
		if pid, cgroups := w.waitingProcess(id); pid != 0 {
			if info == nil {
				var err error
				if info, err = w.created(ctx, id); err != nil {
					w.source.log.Debug("cannot report a container before it starts", "id", id, "error", err)
					return false
				}
				// Asked while the network is made, it takes no time after that.
				if err := w.tellImage(ctx, info.Image, convert(info)); err != nil {
					w.source.log.Debug("ask for an image's labels ahead", "id", id, "error", err)
				}
			}
			if info.HostConfig.NetworkMode == "host" || w.hasInterface(pid) {
				info.State.Pid = pid
				w.reportStarting(ctx, info, cgroups)
				return false
			}
		}
		elapsed := time.Since(began)
		if elapsed > prestartTimeout {
			return false
		}
		select {
		case <-time.After(max(minPrestartPause, elapsed/64)):
		case <-wake:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

func (w *watch) created(ctx context.Context, id string) (*inspection, error) {
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
		return w.api.created(ctx, id)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *watch) reportStarting(ctx context.Context, info *inspection, cgroups string) {
	c, err := w.complete(ctx, info, cgroups)
	if err != nil {
		w.source.log.Debug("cannot report a container before it starts", "id", info.ID, "error", err)
		return
	}
	sent := *c // the receiver's to change
	if w.source.send(ctx, w.events, discovery.Event{Updated: &sent}) {
		w.mu.Lock()
		w.known[info.ID] = c
		w.mu.Unlock()
	}
}

// waitingProcess is the one process in a container's cgroup and the text of its
// /proc/PID/cgroup; 0 if there is none or are more, as while it is created.
func (w *watch) waitingProcess(id string) (pid int, cgroups string) {
	w.mu.Lock()
	patterns := slices.Clone(w.cgroupPatterns)
	w.mu.Unlock()
	for _, pattern := range patterns {
		path := strings.ReplaceAll(pattern, idPlaceholder, id)
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			continue
		}
		// Process 0 is one that cannot be seen from here.
		if cgroups, err := ownCgroups(w.source.procDir, id, pid); err == nil && pid != 0 {
			return pid, cgroups
		}
	}
	return 0, ""
}

// hasInterface says whether a process has a network namespace of its own, and
// there is an interface in it that is up and has an address. One that is still
// in its parent's namespace, which is the engine's, is not yet what it will be.
func (w *watch) hasInterface(pid int) bool {
	process := filepath.Join(w.source.procDir, strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return false
	}
	own, errOwn := os.Stat(filepath.Join(process, "ns", "net"))
	parents, errParents := os.Stat(filepath.Join(w.source.procDir, parentPID(stat), "ns", "net"))
	if errOwn != nil || errParents != nil || os.SameFile(own, parents) {
		return false
	}
	// Both tables have lines for interfaces that are up only; the first line
	// of the routes is a heading.
	routes, err := os.ReadFile(filepath.Join(process, "net", "route"))
	if err == nil && bytes.Count(routes, []byte("\n")) > 1 {
		return true
	}
	addresses6, err := os.ReadFile(filepath.Join(process, "net", "if_inet6"))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(addresses6) {
		if !bytes.HasSuffix(line, []byte(" lo\n")) {
			return true
		}
	}
	return false
}

// parentPID reads a process's parent from the text of /proc/PID/stat.
func parentPID(stat []byte) string {
	// The process's name, in parentheses, may itself have any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "none"
	}
	return string(fields[1])
}

// created reads of a container, running or not, what the list of containers
// tells. Unlike an inspection it is answered while the container is started.
func (a *api) created(ctx context.Context, id string) (*inspection, error) {
	filters, err := json.Marshal(map[string][]string{"id": {id}})
	if err != nil {
		return nil, err
	}
	query := url.Values{"all": {"1"}, "filters": {string(filters)}}
	var found *inspection
	err = a.get(ctx, "/containers/json?"+query.Encode(), func(dec *json.Decoder) error {
		return readArray(dec, func(listed listedContainer) {
			if listed.ID == id {
				found = listed.inspection()
			}
		})
	})
	if err == nil && found == nil {
		err = errors.New("it is not there")
	}
	if err != nil {
		return nil, fmt.Errorf("list container %.12s: %w", id, err)
	}
	return found, nil
}

// listedContainer is what is read of a container in the list.
type listedContainer struct {
	ID         string `json:"Id"`
	Names      []string
	Image      string
	ImageID    string
	Labels     map[string]string
	HostConfig struct {
		NetworkMode string
	}
	NetworkSettings struct {
		Networks map[string]struct{ NetworkID string }
	}
}

func (l *listedContainer) inspection() *inspection {
	info := &inspection{ID: l.ID, Image: l.ImageID, HostConfig: l.HostConfig}
	info.NetworkSettings.Networks = l.NetworkSettings.Networks
	info.Config.Image, info.Config.Labels = l.Image, l.Labels
	for _, name := range l.Names {
		// Others are what linked containers call it: /OTHER/NAME.
		if strings.LastIndex(name, "/") == 0 {
			info.Name = name
		}
	}
	return info
}
