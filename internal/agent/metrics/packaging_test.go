package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/weir-project/weir/test/must"
)

const (
	prometheusDir = "../../../packaging/prometheus"
	dashboardsDir = "../../../packaging/grafana"
)

// exist fails the test if an expression asks for a metric that there is not.
func exist(t *testing.T, where, expression string) {
	t.Helper()
	s := host(1)
	s.Containers[0].State = ""
	s.Containers[0].Runtime, s.Containers[0].Name = "kubernetes", "shop/web"
	s.Containers[0].In = &s.Containers[0].Direction
	// A Prometheus adds labels of the target, and of its own.
	all := text(t, s) + `instance="" cluster=""`
	names := regexp.MustCompile(`weir_\w+`).FindAllString(expression, -1)
	if len(names) == 0 {
		t.Errorf("%s: %q asks for nothing of Weir", where, expression)
	}
	for _, name := range names {
		if !strings.Contains(all, "\n# TYPE "+name+" ") {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
	labels := regexp.MustCompile(`(\w+)=~?"`).FindAllStringSubmatch(expression, -1)
	for _, label := range labels {
		if !strings.Contains(all, label[1]+`="`) {
			t.Errorf("%s: no metric has a label %s", where, label[1])
		}
	}
}

func TestAlertRules(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(prometheusDir, "weir.rules.yaml"))
	must.Succeed(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	must.Succeed(t, yaml.Unmarshal(data, &file))
	var names []string
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			exist(t, rule.Alert, rule.Expr)
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s does not say what to do", rule.Alert)
			}
		}
	}
	if got, want := strings.Join(names, " "), "WeirMinimumNotKept WeirMinimumRejected WeirUplinkSaturated WeirAgentDegraded WeirUplinkDegraded"; got != want {
		t.Errorf("alerts %s, want %s", got, want)
	}
}

// Prometheus itself reads the rules, and fires them when it should.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian's package prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", "weir.rules.yaml"}, {"test", "rules", "weir.rules.test.yaml"}} {
		command := exec.Command(promtool, args...)
		command.Dir = prometheusDir
		if said, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text(t, host(2)))
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, said)
	}
}

func TestDashboard(t *testing.T) {
	for _, name := range []string{"weir.json", "weir-cluster.json"} {
		t.Run(name, func(t *testing.T) { checkDashboard(t, filepath.Join(dashboardsDir, name)) })
	}
}

func checkDashboard(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	must.Succeed(t, json.Unmarshal(data, &board))
	if filepath.Base(path) == "weir-cluster.json" {
		// The host and containers of Docker have no namespace and pod, and may get the target's.
		all := regexp.MustCompile(`weir_container_\w+(\{runtime=\\"kubernetes\\",)?`).FindAllStringSubmatch(string(data), -1)
		for _, selector := range all {
			if selector[1] == "" {
				t.Errorf("%s selects more than pods: begin with {runtime=\"kubernetes\",", selector[0])
			}
		}
	}
	if len(board.Panels) == 0 {
		t.Error("no panels")
	}
	ids := map[int]bool{}
	for _, panel := range board.Panels {
		if ids[panel.ID] || len(panel.Targets) == 0 {
			t.Errorf("panel %q: id %d, %d targets", panel.Title, panel.ID, len(panel.Targets))
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			exist(t, panel.Title, target.Expr)
		}
	}
	variables := map[string]bool{"__rate_interval": true, "__all": true} // Grafana's own
	for _, variable := range board.Templating.List {
		variables[variable.Name] = true
		if variable.Type == "query" {
			exist(t, "variable", variable.Query)
		}
	}
	for _, used := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(string(data), -1) {
		if !variables[used[1]] {
			t.Errorf("%s is no variable", used[0])
		}
	}
}
