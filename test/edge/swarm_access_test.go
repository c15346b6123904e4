//go:build docker

package edge

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/pki"
)

// agentPort is where agents listen for other hosts.
const agentPort = 7481

// credentials are those that agents accept over the network.
type credentials struct {
	authority *pki.Authority
	// tokens are the agents' list of them.
	tokens string
	// admin and reader are files with tokens of these roles.
	admin, reader string
	// certificate is of an admin.
	certificate pki.Pair
}

func newCredentials(t *testing.T, dir string) *credentials {
	t.Helper()
	c := &credentials{
		authority: pki.New(t), tokens: filepath.Join(dir, "tokens"),
		admin: filepath.Join(dir, "admin.token"), reader: filepath.Join(dir, "reader.token"),
	}
	for path, role := range map[string]access.Role{c.admin: access.Admin, c.reader: access.Read} {
		token, err := access.AddToken(c.tokens, "edge-"+role.String(), role)
		if err != nil {
			t.Fatal(err)
		}
		writeToken(t, path, token)
	}
	c.certificate = c.authority.Client(t, "edge.example", time.Now().Add(time.Hour))
	return c
}

func writeToken(t *testing.T, path, token string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// settings let the agent of a node listen for other hosts.
func (c *credentials) settings(t *testing.T, node *testbed.NetContainer) map[string]any {
	t.Helper()
	pair := c.authority.Server(t, "node.example", node.Addr.AsSlice())
	return map[string]any{"tokens": c.tokens, "listen": map[string]any{
		"address": fmt.Sprintf("%s:%d", node.Addr, agentPort), "certificate": pair.Certificate, "key": pair.Key,
		"client_ca": c.authority.Path, "admins": []string{"edge.example"},
	}}
}

// byToken and byCertificate are how weir-edge is told to ask agents.
func (c *credentials) byToken(file string) []string {
	return agentsAt(c.authority.Path, "--agents-token-file", file)
}

func (c *credentials) byCertificate(pair pki.Pair) []string {
	return agentsAt(c.authority.Path, "--agents-cert", pair.Certificate, "--agents-key", pair.Key)
}

func agentsAt(ca string, by ...string) []string {
	return append([]string{"--agents", fmt.Sprintf("https://{address}:%d", agentPort), "--agents-ca", ca}, by...)
}

// testAccess: agents are told minimums over TLS by who has the role for it, by a token or a
// certificate; all others are told why not, and promise nothing. It ends with a weir-edge
// that has a certificate; the one before had a token.
func (c *cluster) testAccess(t *testing.T) {
	t.Run("refused", c.testNoAccess)
	t.Run("may only look", c.testReadOnly)
	c.restart(t, c.credentials.byToken(c.credentials.admin))
	t.Run("by token", func(t *testing.T) { c.testTold(t, "told") })
	c.must(t, "rm", "told")
	c.restart(t, c.credentials.byCertificate(c.credentials.certificate))
	if err := c.deploy(t, specification("shown", pagesImage, 8084, 10, map[string]string{"weir.min": "10mbit"})); err != nil {
		t.Fatal(err)
	}
	t.Run("by certificate", func(t *testing.T) { c.testTold(t, "shown") })
	c.must(t, "rm", "shown")
}

// testNoAccess: a node that is not trusted, or trusts none, is told what is wrong.
func (c *cluster) testNoAccess(t *testing.T) {
	own := c.credentials
	wrong := filepath.Join(t.TempDir(), "wrong.token")
	writeToken(t, wrong, "weir_"+strings.Repeat("x", 43))
	says := map[string]string{}
	clients := map[string]*server.Client{}
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"authority":   {agentsAt(pki.New(t).Path, "--agents-token-file", own.admin), "its certificate is of no authority that is trusted here"},
		"expired":     {own.byCertificate(own.authority.Client(t, "edge.example", time.Now().Add(-time.Minute))), "it does not take the certificate that it is shown"},
		"wrong token": {own.byToken(wrong), "this token is not valid"},
		"nobody":      {agentsAt(own.authority.Path), "send a token"},
	} {
		dir := t.TempDir()
		socket := filepath.Join(dir, "edge.sock")
		defer c.launchManager(t, socket, dir, append(tc.args, "--dry-run")...).kill()
		says[name], clients[name] = tc.says, server.NewClient(socket)
	}
	for name, client := range clients {
		harness.Await(t, name+": all nodes say what is wrong", 20*time.Second, func() error {
			nodes, err := client.Nodes(t.Context())
			if err == nil && (len(nodes) != len(c.nodes) || slices.ContainsFunc(nodes, func(n edge.Node) bool { return n.State != "stale" || !strings.Contains(n.Reason, says[name]) })) {
				err = fmt.Errorf("%+v", nodes)
			}
			return err
		})
	}
	plain := c.begin(t, &manager{cmd: c.engine.Command(os.Getenv(programVariable), "run", "--docker", c.engine.Socket(), "--state-dir", t.TempDir(), "--agents", fmt.Sprintf("http://{address}:%d", agentPort))})
	select {
	case <-plain.end:
	case <-time.After(20 * time.Second):
		t.Error("over HTTP: it runs")
	}
	if said := plain.log.String(); !strings.Contains(said, "over TLS only; write for example https://{address}:7481") {
		t.Errorf("over HTTP: %s", said)
	}
}

// testReadOnly: with a token that may only look nothing is promised, from the first round
// on, and what needs no promise goes on.
func (c *cluster) testReadOnly(t *testing.T) {
	c.restart(t, c.credentials.byToken(c.credentials.reader))
	if err := c.deploy(t, specification("told", pagesImage, 8083, 10, map[string]string{"weir.min": "10mbit"})); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if i > 0 { // now it is there in the first round
			c.restart(t, c.credentials.byToken(c.credentials.reader))
		}
		harness.Await(t, "it is said why it does not run", 20*time.Second, func() error {
			for _, i := range c.ps(t) {
				if i.Service == "told" && i.State == "pending" && strings.Contains(i.Reason, "weir-edge has only the role read") {
					return nil
				}
			}
			return errNot(c.must(t, "ps"))
		})
	}
	harness.Await(t, "it is said what to do", 20*time.Second, func() error {
		if said := c.must(t, "events"); !strings.Contains(said, "gives token edge-read only the role read: give weir-edge a token with the role admin") {
			return errNot(said)
		}
		return nil
	})
	t.Logf("weir-edge nodes\n%s", c.must(t, "nodes"))
	if out := c.must(t, "nodes"); strings.Count(out, "its agent gives token edge-read only the role read: no minimum can be promised there") != len(c.nodes) {
		t.Errorf("weir-edge nodes\n%s", out)
	}
	c.awaitGuarantees(t, "told", nil)
	err := c.client.Events(t.Context(), false, func(e edge.Event) error {
		if e.Service == "told" && e.Kind == edge.EventDecision {
			t.Errorf("it was decided: %s", e.Message)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := c.get(0, 8080); err != nil {
		t.Errorf("a service without a minimum: %v", err)
	}
}

// restart has weir-edge ask agents in another way.
func (c *cluster) restart(t *testing.T, agents []string) {
	t.Helper()
	c.manager.kill()
	c.agentArgs = agents
	c.startManager(t)
}

// testTold: the minimum of a service arrives where `weir ps` shows it, at the agent of its
// node.
func (c *cluster) testTold(t *testing.T, service string) {
	c.awaitRunning(t, service, 1, 30*time.Second)
	home := c.home(t, service)
	c.awaitGuarantees(t, service, map[int]uint64{home: 10e6})
	ps := exec.Command(harness.Program(t), "ps", "-o", "json", "--socket", c.agentDir(c.nodes[home].Addr.String()).Socket())
	out, err := ps.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []v1.Container
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list, func(one v1.Container) bool {
		return slices.Contains(one.Groups, "edgeproxy-"+service) && one.Policy.MinBPS == 10e6 && one.PolicyFrom.Min == v1.LayerSet && one.State == v1.StateOK
	}) {
		t.Errorf("weir ps\n%s", out)
	}
}
