package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestChangesLoseNoConnection: answers that are under way while instances come, get other
// weights and go arrive whole, new users are with those that stay, and who has left is gone.
func TestChangesLoseNoConnection(t *testing.T) {
	for _, mode := range []Mode{ModeHTTP, ModeTCP} {
		t.Run(string(mode), func(t *testing.T) { testChanges(t, mode) })
	}
}

func testChanges(t *testing.T, mode Mode) {
	const users = 6
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	instance := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, name)
			if r.URL.Path != "/long" {
				return
			}
			_ = http.NewResponseController(w).Flush()
			<-goOn
			_, _ = io.WriteString(w, ", and the rest")
		}
	}
	first := Server{Name: "edge-s-1", Address: answering(t, instance("first")), Weight: 256}
	second := Server{Name: "edge-s-2", Address: answering(t, instance("second")), Weight: 256}
	t.Cleanup(release) // before the instances end, which wait for their answers
	port := Port{Host: freePort(t), Servers: []Server{first}}
	control := startHAProxy(t, Config{Service: "s", Mode: mode, QueueTimeout: 10 * time.Second, Ports: []Port{port}})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(path string) (*http.Response, error) {
		return client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port.Host, path))
	}
	apply := func(servers ...Server) (leaving int) {
		t.Helper()
		port.Servers = servers
		leaving, err := control.Apply(context.Background(), []Port{port})
		if err != nil {
			t.Fatal(err)
		}
		return leaving
	}

	var begun, ended sync.WaitGroup
	begun.Add(users)
	for range users {
		ended.Go(func() {
			response, err := ask("/long")
			begun.Done() // the head of the answer is there
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if body, err := io.ReadAll(response.Body); err != nil || string(body) != "first, and the rest" {
				t.Errorf("a user gets %q, %v", body, err)
			}
		})
	}
	begun.Wait()
	apply(first, second)
	first.Weight, first.MaxUsers = 1, 100
	apply(first, second)
	if leaving := apply(second); leaving != users {
		t.Errorf("%d users are with the one that leaves, want %d", leaving, users)
	}
	await := func(what string, reached func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !reached(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("not within 20 s: " + what)
			}
		}
	}
	quick := func() string {
		response, err := ask("/")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return fmt.Sprint(string(body), err)
	}
	await("the second answers", func() bool { return quick() == "second<nil>" })
	for range 20 {
		if body := quick(); body != "second<nil>" {
			t.Errorf("a new user gets %s", body)
		}
	}
	if leaving := apply(second); leaving != users {
		t.Errorf("meanwhile %d users are with the one that leaves, want %d", leaving, users)
	}
	release()
	ended.Wait()
	await("the first is gone", func() bool {
		leaving := apply(second)
		seen, err := control.Status(context.Background())
		return err == nil && leaving == 0 && !slices.ContainsFunc(seen.Servers, func(s ServerStatus) bool { return s.Name == first.Name })
	})
	if body := quick(); body != "second<nil>" {
		t.Errorf("at the end a user gets %s", body)
	}
}
