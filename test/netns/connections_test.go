//go:build netns

package netns

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestConnections: an agent counts the connections of the containers that a request names, and of no others; one in the
// host's network has none of its own.
func TestConnections(t *testing.T) {
	b := newBed(t)
	web, other := b.Add("web", nil), b.Add("other", nil)
	b.AddMode("host", testbed.ModeHost, nil)
	agent := b.StartAgent(harness.AgentOptions{})
	for range 2 {
		var listener net.Listener
		must.Succeed(t, testbed.InNetNS(web.NetNSPath(), func() (err error) {
			listener, err = net.Listen("tcp", "0.0.0.0:0")
			return err
		}))
		defer listener.Close()
		must.Succeed(t, testbed.InNetNS(other.NetNSPath(), func() error {
			user, err := net.Dial("tcp", fmt.Sprintf("%v:%d", web.Addr, listener.Addr().(*net.TCPAddr).Port))
			if err == nil {
				t.Cleanup(func() { user.Close() })
				_, err = user.Write([]byte("ask"))
			}
			return err
		}))
	}
	for _, test := range []struct {
		named []string
		want  map[string]int
	}{{nil, nil}, {[]string{"web", "nobody"}, map[string]int{"web": 2}}, {[]string{"other", "host"}, map[string]int{"other": 0}}} {
		harness.Await(t, fmt.Sprint("connections of ", test.named), 5*time.Second, func() error {
			node, err := agent.Client.Node(t.Context(), test.named...)
			for _, name := range []string{"web", "other", "host"} {
				i := slices.IndexFunc(node.Measured.Containers, func(c v1.MeasuredContainer) bool { return c.Name == name })
				want, counted := test.want[name]
				if i < 0 || (node.Measured.Containers[i].Connections != nil) != counted || counted && *node.Measured.Containers[i].Connections != want {
					return fmt.Errorf("%s: %+v, %w", name, node.Measured.Containers, err)
				}
			}
			return err
		})
	}
}
