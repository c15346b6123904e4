package server

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
)

// TestCountsConnections: requests count one at a time, briefly, and share what they count.
func TestCountsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const containers, took = 100, 10 * time.Millisecond
		var mu sync.Mutex
		counted, running := map[string]int{}, 0
		c := newConnections()
		c.count = func(path string) (int, error) {
			mu.Lock()
			counted[path]++
			if running++; running > 1 {
				t.Error("two requests count at once")
			}
			mu.Unlock()
			time.Sleep(took)
			mu.Lock()
			defer mu.Unlock()
			running--
			if path == "/ns/gone" {
				return 0, errors.New("it has ended")
			}
			return 7, nil
		}
		s := &stats.Snapshot{}
		var names []string
		measured := func() (list []v1.MeasuredContainer) {
			for _, of := range s.Containers {
				list = append(list, v1.MeasuredContainer{ID: of.ID, Name: of.Name})
			}
			return list
		}
		add := func(name, path string) {
			s.Containers = append(s.Containers, v1.Container{ID: "id-" + name, Name: name})
			s.Places = append(s.Places, stats.Place{NetNSPath: path})
		}
		for i := range containers {
			name := fmt.Sprint("c", i)
			add(name, "/ns/"+name)
			names = append(names, name)
		}
		add("gone", "/ns/gone")
		add("in the host's network", "")
		add("a container without a request", "/ns/x")
		names = append(names, "gone", "in the host's network")
		// A request takes a fifth of a second, and a walk, also beside others.
		ask := func() (known int) {
			began, list := time.Now(), measured()
			c.add(t.Context(), names, s, list)
			if took := time.Since(began); took > countingTime+10*time.Millisecond {
				t.Errorf("a request takes %v", took)
			}
			for i := range list {
				if list[i].Connections != nil {
					known++
					if *list[i].Connections != 7 || i >= containers {
						t.Errorf("%s has %d", list[i].Name, *list[i].Connections)
					}
				}
			}
			return known
		}
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() { ask() })
		}
		asking.Wait()
		if most := int(countingTime/took) + 1; len(counted) > most {
			t.Errorf("8 requests count %d times", len(counted))
		}
		began := time.Now()
		for ask() < containers {
			if time.Since(began) > countValid {
				t.Fatal("not all are counted")
			}
			time.Sleep(time.Second)
		}
		for range 60 { // as weir-edge asks
			time.Sleep(time.Second)
			if known := ask(); known != containers {
				t.Fatalf("%d are known", known)
			}
		}
		if counted["/ns/x"] > 0 || counted[""] > 0 {
			t.Error("what nobody asked for is counted")
		}
		sum := 0
		for _, times := range counted {
			sum += times
		}
		if busy := time.Duration(sum) * took; busy > time.Since(began)/(1+countingRest)+countingTime+took {
			t.Errorf("in %v it counts for %v", time.Since(began), busy)
		}
		// With few, a count is two seconds old.
		names = []string{"c1"}
		before := counted["/ns/c1"]
		for range 10 {
			time.Sleep(time.Second)
			ask()
		}
		if more := counted["/ns/c1"] - before; more < 4 || more > 6 {
			t.Errorf("in ten seconds one is counted %d times", more)
		}
		time.Sleep(countValid)
		if ask(); len(c.counts) != 1 {
			t.Errorf("%d old counts are kept", len(c.counts))
		}
	})
}
