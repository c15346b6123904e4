package templates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"
)

// pod refers to templates.
func pod(namespace, name string, refersTo ...string) *core.Pod {
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, t := range refersTo {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, core.PodResourceClaim{Name: t, ResourceClaimTemplateName: &t})
	}
	return p
}

func leads() error { return nil }

// TestCreateNoLonger: an instance that has lost its lease makes nothing, also while nothing has stopped it yet.
func TestCreateNoLonger(t *testing.T) {
	kube := fake.NewClientset(pod("shop", "a", "weir-min-1.5mbit"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var said bytes.Buffer
	checked := 0
	check := func() error {
		if checked++; checked == 3 {
			cancel()
		}
		return errors.New("for a test")
	}
	if err := create(ctx, kube, check, slog.New(slog.NewTextHandler(&said, nil))); err != nil {
		t.Fatal(err)
	}
	for _, action := range kube.Actions() {
		if action.GetVerb() == "create" {
			t.Errorf("it makes %v", action)
		}
	}
	if !strings.Contains(said.String(), "not the leader any more: for a test") {
		t.Errorf("it says %s", &said)
	}
}

// TestCreate: what pods refer to is made, also when the API server has refused it at first; what is there
// stays, and what is no minimum or not Weir's is not made.
func TestCreate(t *testing.T) {
	owned := &resource.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "weir-min-1gbit"}}
	kube := fake.NewClientset(owned,
		pod("shop", "a", "weir-min-1.5mbit", "weir-min-1gbit"), pod("shop", "b", "weir-min-", "weir-min-fast", "gpu"), pod("shop", "c"))
	refused := false
	kube.PrependReactor("create", "resourceclaimtemplates", func(kubetesting.Action) (bool, runtime.Object, error) {
		first := !refused
		refused = true
		return first, nil, fmt.Errorf("for a test")
	})
	ctx, cancel := context.WithCancel(t.Context())
	var said bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- create(ctx, kube, leads, slog.New(slog.NewTextHandler(&said, nil))) }()
	await := func(want ...string) {
		t.Helper()
		var names []string
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
			list, err := kube.ResourceV1().ResourceClaimTemplates("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			names = nil
			for _, made := range list.Items {
				name := made.Namespace + "/" + made.Name
				for _, r := range made.Spec.Spec.Devices.Requests {
					bps := r.Exactly.Capacity.Requests["egressBandwidth"]
					name += fmt.Sprintf(" %s %s", r.Exactly.DeviceClassName, bps.String())
				}
				names = append(names, name)
			}
			if slices.Sort(names); slices.Equal(names, want) {
				return
			}
		}
		t.Fatalf("made %q, want %q", names, want)
	}
	await("shop/weir-min-1.5mbit bandwidth.weir.dev 1500k", "shop/weir-min-1gbit")
	if _, err := kube.CoreV1().Pods("home").Create(t.Context(), pod("home", "d", "weir-min-20mbit"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("home/weir-min-20mbit bandwidth.weir.dev 20M", "shop/weir-min-1.5mbit bandwidth.weir.dev 1500k", "shop/weir-min-1gbit")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "trying again"); n != 1 { // for what was refused at first
		t.Errorf("it tried again %d times:\n%s", n, &said)
	}
}

// TestLead: an instance takes the lease by the API server's client, waits while another one has it, and gives it back.
func TestLead(t *testing.T) {
	var mu sync.Mutex
	var lease map[string]any
	var said []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		path, isLease := strings.CutPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
		switch {
		case isLease && r.Method == http.MethodGet && lease != nil:
		case isLease && r.Method == http.MethodPost && path == "", isLease && r.Method == http.MethodPut && path == "/weir-templates":
			if err := json.NewDecoder(r.Body).Decode(&lease); err != nil || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %v", r.Header, err)
			}
			said = append(said, fmt.Sprint(r.Method, " ", lease["spec"].(map[string]any)["holderIdentity"]))
			lease["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(len(said))
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}`)
			return
		}
		_ = json.NewEncoder(w).Encode(lease)
	}))
	defer api.Close()
	kube := kubernetes.NewForConfigOrDie(&rest.Config{Host: api.URL})
	run := func(want string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, kube, slog.New(slog.NewTextHandler(&locked{mu: &mu, to: &log}, nil))) }()
		for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			found := strings.Contains(log.String(), want)
			mu.Unlock()
			if found {
				break
			} else if time.Since(began) > 10*time.Second {
				t.Errorf("it does not say %q", want)
				break
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	run("makes templates of claims")
	name, _ := os.Hostname()
	if want := []string{"POST " + name, "PUT "}; !slices.Equal(said, want) {
		t.Errorf("the lease was written by %q, want %q", said, want)
	}
	lease["spec"].(map[string]any)["holderIdentity"] = "another"
	run("another holds the lease")
	if len(said) != 2 {
		t.Errorf("it wrote %q", said)
	}
}

// locked is a writer that several goroutines may use.
type locked struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (l *locked) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(text)
}
