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

	"github.com/weir-project/weir/internal/agent/discovery"
)

// Reporting containers before they start.
//
// An engine reports a start when the container's process already runs and may have sent packets. It
// reports the network connection earlier, but answers an inspection only after the start, because
// the start holds the container's lock. So this file finds the container without inspecting it: its
// future process waits in the container's cgroup, whose path follows the pattern of other
// containers; the network namespace of that process is the container's; and the list of containers,
// which needs no lock, has the labels. After the start the container is inspected and reported
// again. If any of this is missing (an engine without network events, no cgroup v2), the container
// is reported after its start.

const (
	// prestartTimeout bounds how long a connected container may take to start before the search for
	// it ends.
	prestartTimeout = 10 * time.Second
	// minPrestartPause is the first pause between two looks; later pauses grow with the time that
	// has passed. With many containers at once a pause has crowdPause for each, so that all looks
	// together do not take a processor.
	minPrestartPause = 2 * time.Millisecond
	crowdPause       = 50 * time.Microsecond
	// maxCgroupPatterns bounds the paths tried for one container; most engines use one pattern for
	// all.
	maxCgroupPatterns = 8
)

// idPlaceholder stands for the container's ID in a cgroup path.
const idPlaceholder = "{id}"

// cgroupPatterns are the path patterns of containers' cgroups, those of the engine's two cgroup
// drivers first.
type cgroupPatterns []string

func defaultCgroupPatterns(point string) cgroupPatterns {
	return cgroupPatterns{
		filepath.Join(point, "docker", idPlaceholder),
		filepath.Join(point, "system.slice", "docker-"+idPlaceholder+".scope"),
	}
}

// learn adds the pattern of a container's cgroup path.
func (p *cgroupPatterns) learn(path, id string) {
	pattern := strings.ReplaceAll(path, id, idPlaceholder)
	if path == "" || slices.Contains(*p, pattern) {
		return
	}
	if *p = append(*p, pattern); len(*p) > maxCgroupPatterns {
		*p = (*p)[1:]
	}
}

// reportBeforeStart reports a container that is about to start, if it is found in time. It returns
// true when wake signals other news of the container; the caller then handles that.
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
				// Asking while the engine makes the network costs no time later.
				if err := w.tellImage(ctx, info.Image, convert(info)); err != nil {
					w.source.log.Debug("cannot ask for an image's labels ahead", "id", id, "error", err)
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
		case <-time.After(max(minPrestartPause, elapsed/64, time.Duration(w.changing())*crowdPause)):
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
	sent := *c // a copy, as the receiver may change it
	if discovery.Send(ctx, w.source, w.events, discovery.Event{Updated: &sent}) {
		w.mu.Lock()
		w.known[info.ID] = c
		w.mu.Unlock()
	}
}

// changing returns how many containers have pending work.
func (w *watch) changing() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending)
}

// waitingProcess returns the only process in a container's cgroup and the text of its
// /proc/PID/cgroup. pid is 0 if the cgroup has no process or several, as during creation.
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
		// Process 0 is outside the agent's process ID namespace.
		if cgroups, err := ownCgroups(w.source.procDir, id, pid); err == nil && pid != 0 {
			return pid, cgroups
		}
	}
	return 0, ""
}

// hasInterface reports whether a process has its own network namespace with an interface that is up
// and has an address. Until then the process is still in its parent's namespace, which is the
// engine's.
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
	// Both tables list only interfaces that are up; the first line of the routes is a heading.
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

// parentPID returns a process's parent from the text of /proc/PID/stat.
func parentPID(stat []byte) string {
	// The process's name, in parentheses, may contain any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "none"
	}
	return string(fields[1])
}

// created returns a container, running or not, from the list of containers. Unlike an inspection,
// the engine answers this during the start.
func (a *api) created(ctx context.Context, id string) (*inspection, error) {
	filters, err := json.Marshal(map[string][]string{"id": {id}})
	if err != nil {
		return nil, err
	}
	query := url.Values{"all": {"1"}, "filters": {string(filters)}}
	var found *inspection
	err = a.get(ctx, "/containers/json?"+query.Encode(), maxListBytes, func(dec *json.Decoder) error {
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

// listedContainer holds the fields read from one entry of the container list.
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
		// Skip the names that linked containers use: /OTHER/NAME.
		if strings.LastIndex(name, "/") == 0 {
			info.Name = name
		}
	}
	return info
}
