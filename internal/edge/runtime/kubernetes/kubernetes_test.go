package kubernetes

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/test/must"
)

// fakeAPI is an API server that keeps objects by their paths. It has no class for claims unless a test adds it.
type fakeAPI struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	made    int
	// asked are the requests: "GET /path".
	asked []string
	// fail returns the status of an answer that is no success, or 0; it may be nil.
	fail       func(*http.Request) int
	retryAfter string
	// watches are what watches say, by the path that is watched.
	watches map[string]chan string
}

func newFake(t *testing.T) (*fakeAPI, *Runtime) {
	t.Helper()
	f := &fakeAPI{objects: map[string]map[string]any{}, watches: map[string]chan string{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	a, err := newAPI(server.URL, &tls.Config{})
	must.Succeed(t, err)
	return f, newRuntime(a, "shop")
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		f.serveWatch(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	if f.fail != nil {
		if code := f.fail(r); code != 0 {
			w.Header().Set("Retry-After", f.retryAfter)
			w.WriteHeader(code)
			return
		}
	}
	var body map[string]any
	if r.Method != http.MethodGet {
		_ = json.NewDecoder(r.Body).Decode(&body)
	}
	there, is := f.objects[r.URL.Path]
	answer := any(there)
	switch {
	case r.Method == http.MethodPost:
		about := body["metadata"].(map[string]any)
		path := r.URL.Path + "/" + about["name"].(string)
		if _, is := f.objects[path]; is {
			w.WriteHeader(http.StatusConflict)
			return
		}
		f.made++
		about["uid"], about["resourceVersion"] = fmt.Sprint("uid-", f.made), fmt.Sprint(f.made)
		f.objects[path], answer = body, body
	case r.Method == http.MethodGet && isList(r.URL.Path):
		answer = map[string]any{"items": f.labelled(r.URL.Path, r.URL.Query().Get("labelSelector"))}
	case !is:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodPut:
		version := func(o map[string]any) any { return o["metadata"].(map[string]any)["resourceVersion"] }
		if version(body) != version(there) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		f.made++
		body["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(f.made)
		f.objects[r.URL.Path], answer = body, body
	case r.Method == http.MethodPatch:
		merge(there, body)
	case r.Method == http.MethodDelete:
		delete(f.objects, r.URL.Path)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// serveWatch passes on what a test says, until the test closes the channel.
func (f *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	said, code := make(chan string), 0
	if f.fail != nil {
		code = f.fail(r)
	}
	if code == 0 {
		f.watches[r.URL.Path] = said
	}
	f.mu.Unlock()
	if code != 0 {
		w.WriteHeader(code)
		return
	}
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case event, is := <-said:
			if !is {
				return
			}
			fmt.Fprintln(w, event)
		}
	}
}

// watch returns what a watch says, once there is one.
func (f *fakeAPI) watch(t *testing.T, path string) (said chan string) {
	t.Helper()
	await(t, "a watch of "+path, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		said = f.watches[path]
		delete(f.watches, path)
		return said != nil
	})
	return said
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("there is not: %s", what)
		}
	}
}

func isList(path string) bool {
	return slices.Contains([]string{configMaps, services, deployments, templates, pods, "nodes"}, path[strings.LastIndex(path, "/")+1:])
}

// merge applies a merge patch.
func merge(there, patch map[string]any) {
	for key, value := range patch {
		into, is := there[key].(map[string]any)
		if of, nested := value.(map[string]any); is && nested {
			merge(into, of)
		} else if value == nil {
			delete(there, key)
		} else {
			there[key] = value
		}
	}
}

func (f *fakeAPI) labelled(folder, selector string) (list []any) {
	key, value, exact := strings.Cut(selector, "=")
	for _, path := range slices.Sorted(maps.Keys(f.objects)) {
		name, inside := strings.CutPrefix(path, folder+"/")
		about, _ := f.objects[path]["metadata"].(map[string]any)
		labels, _ := about["labels"].(map[string]any)
		has, labelled := labels[key]
		if inside && !strings.Contains(name, "/") && (selector == "" || labelled && (!exact || has == value)) {
			list = append(list, f.objects[path])
		}
	}
	return list
}

// add keeps an object that weir-edge has not made.
func (f *fakeAPI) add(path, text string) {
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[path] = o
}

func (f *fakeAPI) has(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, is := f.objects[path]
	return is
}

const document = `{"par": {"serviceName": "Web_1", "imageName": "registry.local/web:2"}, "ports": [{"host": 80, "container": 8083}],
	"labels": {"weir.min": "5mbit", "weir.in.min": "1mbit"}}`

func deployed(t *testing.T, r *Runtime) *runtime.Service {
	t.Helper()
	s := web()
	s.Document = document
	must.Succeed(t, r.Deploy(t.Context(), *s))
	must.Succeed(t, r.Start(t.Context(), *s, "Web_1-1", "gateway"))
	return s
}

// TestNamesOfOthers: two services whose names are one in Kubernetes.
func TestNamesOfOthers(t *testing.T) {
	_, r := newFake(t)
	deployed(t, r)
	err := r.Deploy(t.Context(), runtime.Service{Name: "web-1", Document: "{}"})
	if err == nil || !strings.Contains(err.Error(), "belongs to the service Web_1 (names in Kubernetes have neither capitals nor underscores)") {
		t.Error(err)
	}
}

// TestLost: a Service that is deleted or changed is made again, once it has been so for a while.
func TestLost(t *testing.T) {
	f, r := newFake(t)
	s := deployed(t, r)
	const path = "/api/v1/namespaces/shop/services/web-1"
	lost := func(after time.Duration) bool {
		t.Helper()
		r.mu.Lock()
		for name, since := range r.unlike {
			r.unlike[name] = since.Add(-after)
		}
		r.mu.Unlock()
		state, err := r.Look(t.Context())
		must.Succeed(t, err)
		if len(state.Services) != 1 {
			t.Fatalf("services %+v", state.Services)
		}
		return state.Services[0].Lost
	}
	if lost(0) || lost(lostAfter) {
		t.Error("lost as deployed")
	}
	for what, harm := range map[string]func(){
		"deleted": func() { delete(f.objects, path) },
		"another port": func() {
			f.objects[path]["spec"].(map[string]any)["ports"] = []any{map[string]any{"port": 81, "targetPort": 8083}}
		},
		"another selector": func() { f.objects[path]["spec"].(map[string]any)["selector"] = map[string]any{"app": "x"} },
	} {
		f.mu.Lock()
		harm()
		f.mu.Unlock()
		if lost(0) {
			t.Errorf("%s: lost at once", what)
		}
		if !lost(lostAfter) {
			t.Errorf("%s: not lost", what)
		}
		again := *s
		again.Lost = true
		must.Succeed(t, r.Deploy(t.Context(), again))
		if lost(lostAfter) {
			t.Errorf("%s: still lost", what)
		}
	}
}

// TestNoPorts: the Service of a version before goes, and one of others is not in the way.
func TestNoPorts(t *testing.T) {
	f, r := newFake(t)
	const path = "/api/v1/namespaces/shop/services/bare"
	f.add(path, `{"metadata": {"name": "bare", "labels": {"app": "x"}}}`)
	s := runtime.Service{Name: "bare", Document: `{"par": {"serviceName": "bare", "imageName": "i"}}`}
	must.Succeed(t, r.Deploy(t.Context(), s))
	f.fail = func(r *http.Request) int {
		if r.URL.Path == path {
			return http.StatusForbidden
		}
		return 0
	}
	if err := r.applyService(t.Context(), &s); !isCode(err, http.StatusForbidden) {
		t.Errorf("an answer that is no object counts as none: %v", err)
	}
	f.fail = nil
	if !f.has(path) {
		t.Error("the Service of others is gone")
	}
}

// TestRemove: only what was made for the service goes, not what has its labels.
func TestRemove(t *testing.T) {
	f, r := newFake(t)
	s := deployed(t, r)
	const inShop = "/api/v1/namespaces/shop/"
	exposed := inShop + "services/balancer"
	f.add(exposed, `{"metadata": {"name": "balancer", "labels": {"weir-edge.service": "Web_1", "weir-edge.role": "service", "weir-edge.instance": "Web_1-1"}}}`)
	f.add(inShop+"configmaps/copy", `{"metadata": {"name": "copy", "labels": {"weir-edge.service": "Web_1", "weir-edge.role": "record"}}}`)
	clone := "/apis/apps/v1/namespaces/shop/deployments/clone"
	f.add(clone, `{"metadata": {"name": "clone", "labels": {"weir-edge.service": "Web_1", "weir-edge.role": "instance", "weir-edge.instance": "Web_1-1"}}}`)
	made := []string{inShop + "configmaps/edge-service-web-1", inShop + "services/web-1", "/apis/apps/v1/namespaces/shop/deployments/edge-web-1-1"}
	for _, path := range made {
		if !f.has(path) {
			t.Errorf("%s was not made", path)
		}
	}
	must.Succeed(t, r.Start(t.Context(), *s, "Web_1-2", "gateway"))
	must.Succeed(t, r.Stop(t.Context(), "Web_1-2"))
	must.Succeed(t, r.Stop(t.Context(), "Web_1-1"))
	for _, path := range []string{made[2], strings.Replace(made[2], "1-1", "1-2", 1)} {
		if f.has(path) {
			t.Errorf("%s is left", path)
		}
	}
	must.Succeed(t, r.Start(t.Context(), *s, "Web_1-1", "gateway"))
	must.Succeed(t, r.Remove(t.Context(), s.Name, false))
	for _, path := range made {
		if f.has(path) {
			t.Errorf("%s is left", path)
		}
	}
	if !f.has(exposed) || !f.has(clone) || !f.has(inShop+"configmaps/copy") {
		t.Error("an object of others is gone")
	}
	if err := r.Remove(t.Context(), s.Name, false); !errors.Is(err, runtime.ErrUnknown) {
		t.Error(err)
	}
}

// TestLead: of two weir-edge of a namespace the second one looks at nothing and changes nothing until the first one ends.
func TestLead(t *testing.T) {
	f, first := newFake(t)
	a, err := newAPI(first.api.server, &tls.Config{})
	must.Succeed(t, err)
	second := newRuntime(a, "shop")
	log := slog.New(slog.DiscardHandler)
	end := first.Lead(t.Context(), "a /var", log)
	deployed(t, first)
	endSecond := second.Lead(t.Context(), "b /var", log)
	f.mu.Lock()
	before := f.made
	f.mu.Unlock()
	const says = "another weir-edge manages the namespace, and this one waits until it ends: a /var holds the lease"
	if _, err := second.Look(t.Context()); err == nil || err.Error() != says {
		t.Errorf("the second one says %v", err)
	}
	if err := second.Remove(t.Context(), "Web_1", false); err == nil || !strings.Contains(err.Error(), says) || !f.has("/api/v1/namespaces/shop/configmaps/edge-service-web-1") {
		t.Errorf("the second one removes a service: %v", err)
	}
	if _, err := first.Look(t.Context()); err != nil {
		t.Error(err)
	}
	wrote := first.api.watched.markOf()
	await(t, "a renewal", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.made > before })
	if now := first.api.watched.markOf(); now != wrote {
		t.Error("a renewal counts as a change, after which all is listed")
	}
	end()
	if err := first.Stop(t.Context(), "Web_1-1"); err == nil || !strings.Contains(err.Error(), "this program is stopping") {
		t.Errorf("the first one says %v", err)
	}
	await(t, "the second one leads", func() bool {
		state, err := second.Look(t.Context())
		return err == nil && len(state.Services) == 1
	})
	// What weir-edge down does while another one manages the namespace, and after that has ended.
	b, err := newAPI(first.api.server, &tls.Config{})
	must.Succeed(t, err)
	command := newRuntime(b, "shop")
	must.Succeed(t, command.Remove(t.Context(), "Web_1", false))
	if err := command.Down(t.Context()); err == nil || !strings.Contains(err.Error(), "b /var still manages the namespace shop: stop that weir-edge") {
		t.Errorf("down says %v", err)
	}
	endSecond()
	must.Succeed(t, command.Down(t.Context()))
	if f.has("/apis/coordination.k8s.io/v1/namespaces/shop/leases/weir-edge") {
		t.Error("the lease is left")
	}
}

// TestLeadBusy: the lease is taken while the API server has asked other requests to wait, which they go on to do.
func TestLeadBusy(t *testing.T) {
	f, r := newFake(t)
	lists := 0
	f.retryAfter, f.fail = "30", func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/configmaps") {
			lists++
			return http.StatusTooManyRequests
		}
		return 0
	}
	look := func() {
		t.Helper()
		if _, err := r.Look(t.Context()); !isCode(err, http.StatusTooManyRequests) {
			t.Error(err)
		}
	}
	look()
	defer r.Lead(t.Context(), "a /var", slog.New(slog.DiscardHandler))()
	if err := r.api.checkLease(); err != nil {
		t.Errorf("it cannot take the lease: %v", err)
	}
	look()
	f.mu.Lock()
	defer f.mu.Unlock()
	if lists != 1 {
		t.Errorf("it has listed %d times", lists)
	}
}

// TestLeadSilent: a weir-edge whose context has ended does not wait for a silent API server.
func TestLeadSilent(t *testing.T) {
	f, r := newFake(t)
	asked := make(chan struct{})
	f.fail = func(r *http.Request) int {
		close(asked)
		<-r.Context().Done()
		return http.StatusServiceUnavailable
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-asked; stop() }()
	began := time.Now()
	r.Lead(ctx, "a /var", slog.New(slog.DiscardHandler))()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it waits for %v", took)
	}
}

// TestTemplates: the template of a former minimum goes with the last instance that has it.
func TestTemplates(t *testing.T) {
	f, r := newFake(t)
	f.add("/apis/resource.k8s.io/v1/deviceclasses/"+deviceClass, `{"metadata": {"name": "bandwidth.weir.dev"}}`)
	was := *deployed(t, r)
	must.Succeed(t, r.Start(t.Context(), was, "Web_1-2", "gateway"))
	is := was
	is.Document = strings.Replace(document, "5mbit", "2mbit", 1)
	is.Labels = map[string]string{"weir.min": "2mbit", "weir.in.min": "1mbit"}
	is.Update.Before = &runtime.Version{Document: was.Document}
	must.Succeed(t, r.Update(t.Context(), was, is))
	must.Succeed(t, r.Start(t.Context(), is, "Web_1-3", "gateway"))
	const former, present = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaimtemplates/edge-minimum-web-1-5000000-1000000", "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaimtemplates/edge-minimum-web-1-2000000-1000000"
	must.Succeed(t, r.Stop(t.Context(), "Web_1-1"))
	if !f.has(former) || !f.has(present) {
		t.Error("a template that an instance has is gone")
	}
	must.Succeed(t, r.Stop(t.Context(), "Web_1-2"))
	must.Succeed(t, r.Stop(t.Context(), "Web_1-3"))
	if !f.has(former) {
		t.Error("the template of the version to go back to is gone")
	}
	stays := is
	stays.Update = runtime.Update{}
	must.Succeed(t, r.Update(t.Context(), is, stays))
	if f.has(former) || !f.has(present) {
		t.Errorf("former: %v, present: %v", f.has(former), f.has(present))
	}
}

// TestNodesSeldom: nodes are listed every five seconds.
func TestNodesSeldom(t *testing.T) {
	f, r := newFake(t)
	f.add("/api/v1/nodes/a", `{"metadata": {"name": "a"}}`)
	for range 3 {
		if nodes, err := r.Nodes(t.Context()); err != nil || len(nodes) != 1 {
			t.Fatal(nodes, err)
		}
	}
	if len(f.asked) != 1 {
		t.Errorf("it has asked %v", f.asked)
	}
	r.listed = r.listed.Add(-nodesEvery)
	if _, err := r.Nodes(t.Context()); err != nil || len(f.asked) != 2 {
		t.Errorf("it has asked %v, %v", f.asked, err)
	}
}

// TestBackOff: an API server that has too much to do is left alone.
func TestBackOff(t *testing.T) {
	f, r := newFake(t)
	code := http.StatusTooManyRequests
	f.fail = func(*http.Request) int { return code }
	b := &r.api.backOff
	for _, test := range []struct {
		retryAfter string
		wait       time.Duration
	}{
		{"", time.Second}, {"", 2 * time.Second}, {"7", 7 * time.Second}, {"1", 8 * time.Second}, {"x", 10 * time.Second}, {"-1", 10 * time.Second}, {"9999999999", time.Minute},
	} {
		f.retryAfter, f.asked, b.until = test.retryAfter, nil, time.Time{}
		began := time.Now()
		_, first := r.Look(t.Context())
		_, second := r.Look(t.Context())
		if len(f.asked) != 1 || !isCode(first, code) || !errors.Is(second, first) {
			t.Errorf("%d requests, %v, %v", len(f.asked), first, second)
		}
		if wait := b.until.Sub(began); wait < test.wait || wait > test.wait+time.Second {
			t.Errorf("Retry-After %q: it waits for %v, want %v", test.retryAfter, wait, test.wait)
		}
	}
	code, b.until, f.asked = http.StatusForbidden, time.Time{}, nil
	for range 2 { // a refusal that concerns this request alone
		if _, err := r.Look(t.Context()); !isCode(err, code) {
			t.Error(err)
		}
	}
	if len(f.asked) != 2 {
		t.Errorf("after a refusal it has asked %v", f.asked)
	}
	code = 0
	if _, err := r.Look(t.Context()); err != nil || b.wait != 0 {
		t.Errorf("after a success it waits for %v, %v", b.wait, err)
	}
	began := time.Now()
	for range selectors { // all watches end with the API server
		b.note(began, errors.New("away"), 0)
	}
	b.note(began, errors.New("busy"), 3*time.Second)
	if wait := b.until.Sub(began); b.wait != firstWait || wait != 3*time.Second {
		t.Errorf("after failures at once it waits for %v, and then doubles %v", wait, b.wait)
	}
}

// TestRightsOfTwo: the rights in a second namespace take none from the first.
func TestRightsOfTwo(t *testing.T) {
	text, err := os.ReadFile("../../../../packaging/kubernetes/weir-edge.yaml")
	must.Succeed(t, err)
	named := regexp.MustCompile(`(?s)kind: ClusterRoleBinding\nmetadata: \{ name: (\S+) \}`)
	bindings := map[string]bool{}
	for _, namespace := range []string{"default", "shop"} {
		found := named.FindStringSubmatch(strings.ReplaceAll(string(text), "default", namespace))
		if found == nil {
			t.Fatal("it has no ClusterRoleBinding")
		}
		bindings[found[1]] = true
	}
	if len(bindings) != 2 {
		t.Errorf("the bindings of two namespaces are %v", bindings)
	}
}

// TestWatch: nothing is listed again until a watch says that something has changed, this weir-edge has changed something, or
// a watch has ended.
func TestWatch(t *testing.T) {
	f, r := newFake(t)
	f.add("/api/v1/nodes/a", `{"metadata": {"name": "a"}}`)
	deployed(t, r)
	changed := r.Changes(t.Context())
	all := []string{configMaps, deployments, pods, services, allNodes}
	said := map[string]chan string{}
	for _, kind := range all[:4] {
		said[kind] = f.watch(t, r.path(kind, ""))
	}
	said[allNodes] = f.watch(t, nodesPath)
	isOpen := func() bool { return r.api.watched.markOf(all...) != 0 }
	await(t, "all watches are open", isOpen)
	// asked returns what a look and a listing of nodes have asked.
	asked := func() (list []string) {
		t.Helper()
		f.mu.Lock()
		f.asked = nil
		f.mu.Unlock()
		r.mu.Lock()
		r.listed = time.Now().Add(-nodesEvery)
		r.mu.Unlock()
		state, err := r.Look(t.Context())
		nodes, nodesErr := r.Nodes(t.Context())
		if err != nil || nodesErr != nil || len(state.Services) != 1 || len(state.Instances) != 1 || len(nodes) != 1 {
			t.Errorf("%+v, %v, %v, %v", state, err, nodes, nodesErr)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.asked
	}
	if list := asked(); len(list) != 5 {
		t.Errorf("at first it has asked %v", list)
	}
	if list := asked(); len(list) != 0 {
		t.Errorf("nothing has changed, and it has asked %v", list)
	}
	drain := func() {
		for {
			select {
			case <-changed:
			default:
				return
			}
		}
	}
	for kind, want := range map[string]int{configMaps: 4, deployments: 4, pods: 4, services: 4, allNodes: 1} {
		drain()
		said[kind] <- `{"type": "MODIFIED", "object": {"metadata": {"name": "x"}}}`
		<-changed
		if list := asked(); len(list) != want {
			t.Errorf("of %s something has changed, and it has asked %v", kind, list)
		}
	}
	must.Succeed(t, r.remove(t.Context(), configMaps, "x"))
	if list := asked(); len(list) != 5 {
		t.Errorf("it has changed something itself, and has asked %v", list)
	}
	asked()
	for _, end := range []func(chan string){func(c chan string) { close(c) }, func(c chan string) { c <- `{"type": "ERROR", "object": {"code": 410}}` }} {
		drain()
		end(said[pods])
		<-changed
		for look := range 2 {
			if list := asked(); len(list) != 4 && (look == 0 || !isOpen()) { // it is opened again after a second
				t.Errorf("a watch has ended, and it has asked %v", list)
			}
		}
		said[pods] = f.watch(t, r.path(pods, ""))
		await(t, "it is open again", isOpen)
		asked()
	}
	if list := asked(); len(list) != 0 {
		t.Errorf("all are open, and it has asked %v", list)
	}

	// An API server without its etcd keeps watches open.
	f.mu.Lock()
	f.fail = func(*http.Request) int { return http.StatusInternalServerError }
	f.mu.Unlock()
	r.mu.Lock()
	r.last.began, r.listed = time.Now().Add(-listAgain), time.Now().Add(-listAgain)
	r.mu.Unlock()
	_, err := r.Look(t.Context())
	_, nodesErr := r.Nodes(t.Context())
	if !isOpen() || err == nil || nodesErr == nil {
		t.Errorf("no watch has said anything for long, and it says %v, %v", err, nodesErr)
	}
}

// TestNoWatch: with the rights of an older manifest, which have no watches, each look asks.
func TestNoWatch(t *testing.T) {
	f, r := newFake(t)
	refused := make(chan bool, 100)
	f.fail = func(r *http.Request) int {
		if r.URL.Query().Get("watch") == "" {
			return 0
		}
		refused <- true
		return http.StatusForbidden
	}
	r.Changes(t.Context())
	for range selectors {
		<-refused
	}
	for range 2 {
		f.mu.Lock()
		f.asked = nil
		f.mu.Unlock()
		if _, err := r.Look(t.Context()); err != nil || len(f.asked) != 4 {
			t.Errorf("it has asked %v, %v", f.asked, err)
		}
	}
}
