//go:build cluster

package k8s

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/must"
)

// checkAllNodes: `weir ps --all-nodes` shows the pods of the node to users who may run commands in the agent's
// pod, and tells others what that takes.
func (c *cluster) checkAllNodes(pod string) {
	c.t.Helper()
	list := func(user string, options ...string) (stdout, stderr string, err error) {
		weir, err := filepath.Abs("../../bin/weir")
		must.Succeed(c.t, err)
		ps := c.Host.Command(c.t.Context(), weir, append([]string{"ps", "--all-nodes"}, options...)...)
		ps.Env = append(os.Environ(), "PATH="+c.programs+":"+os.Getenv("PATH"), "KUBECONFIG="+c.file(user+".conf"))
		var out, said bytes.Buffer
		ps.Stdout, ps.Stderr = &out, &said
		err = ps.Run()
		return out.String(), said.String(), err
	}
	refuses := func(user, want string) {
		c.t.Helper()
		if stdout, stderr, err := list(user); err == nil || !strings.Contains(stderr, want) {
			c.t.Errorf("%s sees %s, %s, %v", user, stdout, stderr, err)
		}
	}
	const access = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/"
	allow := func(name string, verbs []string, resource string) {
		c.must("POST", access+"roles", object{"metadata": object{"name": name}, "rules": []object{{"apiGroups": []string{""}, "resources": []string{resource}, "verbs": verbs}}}, nil)
		c.must("POST", access+"rolebindings", object{
			"metadata": object{"name": name}, "subjects": []object{{"kind": "ServiceAccount", "name": "default", "namespace": "shop"}},
			"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
		}, nil)
	}
	var token struct{ Status struct{ Token string } }
	c.must("POST", "/api/v1/"+inShop+"serviceaccounts/default/token", object{}, &token)
	c.writeKubeconfig("eve", token.Status.Token)
	refuses("eve", "weir takes the verbs get and list for pods")
	allow("see-pods", []string{"get", "list"}, "pods")
	refuses("eve", "1 of 1 node did not answer:\n  "+nodeName+": you may not run commands in the agents' pods")
	allow("ask-agents", []string{"get", "create"}, "pods/exec")
	stdout, stderr, err := list("eve", "--output=json")
	var containers []struct {
		Node string
		v1.Container
	}
	if err != nil || json.Unmarshal([]byte(stdout), &containers) != nil {
		c.t.Fatalf("eve sees %s, %s, %v", stdout, stderr, err)
	}
	for _, found := range containers {
		if found.Node == nodeName && found.Name == pod && len(found.Shares) == 1 {
			return
		}
	}
	c.t.Errorf("no %s in %s", pod, stdout)
}
