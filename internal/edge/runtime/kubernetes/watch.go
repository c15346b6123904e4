package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/runtime"
)

// # Watches
//
// Rounds come twice a second, and nearly always nothing has changed. So the API server tells by a watch of each kind
// that something has, and only then it is listed: a listing is consistent and has what was just made, which a copy that is
// kept from events has only later. After half a minute of silence it is listed all the same ([listAgain]). A kind whose watch is not open counts as changed, so without watches
// (rights of an older manifest, an API server that is away) each round lists, and says why it cannot.

// watchSeconds is after how long the API server ends a watch, which is opened again then and so is a second look.
const watchSeconds = 600

// The nodes of a cluster are a kind without a namespace.
const (
	allNodes  = "nodes"
	nodesPath = "/api/v1/nodes"
)

// selectors are the labels of what is watched, by kind.
var selectors = map[string]string{
	configMaps: runtime.LabelRole + "=" + roleRecord, deployments: runtime.LabelInstance, pods: runtime.LabelInstance,
	services: runtime.LabelRole + "=" + roleService, allNodes: "",
}

// watched counts the changes of each kind. It is safe for concurrent use.
type watched struct {
	mu sync.Mutex
	// changes counts what watches said of a kind, and opening of watches; open are the watches.
	changes map[string]uint64
	open    map[string]bool
	// wrote counts what this program may have changed.
	wrote uint64
}

// mark stands for the changes of some kinds up to a moment; 0 is none.
type mark uint64

// markOf returns the mark of kinds, for before they are listed; 0 if a watch of them is not open.
func (w *watched) markOf(kinds ...string) mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := 1 + w.wrote
	for _, kind := range kinds {
		if !w.open[kind] {
			return 0
		}
		sum += w.changes[kind]
	}
	return mark(sum)
}

// note counts a change of a kind.
func (w *watched) note(kind string, open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes[kind]++
	w.open[kind] = open
}

// noteWritten counts a change by this program, also one that may have failed.
func (w *watched) noteWritten() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrote++
}

// Changes implements runtime.Runtime.
func (r *Runtime) Changes(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	for kind := range selectors {
		go r.watch(ctx, kind, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}
	return changed
}

// watch notes the changes of a kind until ctx ends.
func (r *Runtime) watch(ctx context.Context, kind string, changed func()) {
	path := r.path(kind, "")
	if kind == allNodes {
		path = nodesPath
	}
	path += fmt.Sprintf("?watch=1&timeoutSeconds=%d&labelSelector=%s", watchSeconds, url.QueryEscape(selectors[kind]))
	for wait := time.Duration(0); ; wait = min(max(2*wait, firstWait), longestWait) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		r.api.watch(ctx, path, func() {
			r.api.watched.note(kind, true)
			changed()
		})
		r.api.watched.note(kind, false)
		if changed(); time.Since(began) > longestWait {
			wait = 0
		}
	}
}

// watch calls changed when the watch of a path is open, and for each change, until the watch ends. Why a watch does not
// open or ends, the next listing reports.
func (a *api) watch(ctx context.Context, path string, changed func()) {
	response, err := a.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return
	}
	defer response.Body.Close()
	changed()
	for events := json.NewDecoder(response.Body); ; {
		var event struct{ Type string }
		if events.Decode(&event) != nil || strings.EqualFold(event.Type, "ERROR") {
			return
		}
		changed()
	}
}
